"""An HTTP server for saved models; needs the extra `serve`."""
