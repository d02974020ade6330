"""A stand-in of the Hugging Face Hub, for the requests that huggingface_hub makes of models."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse

from huggingface_hub import close_session, constants

FAULTS = {  # of a file that is asked for: status and code of the answer
    "no repository": (401, "RepoNotFound"),
    "no revision": (404, "RevisionNotFound"),
    "no file": (404, "EntryNotFound"),
    "no access": (403, "GatedRepo"),
}


class Hub(http.server.ThreadingHTTPServer):
    """Repositories by name, each a list of commits from a path to its content.

    `fault` is None, one of `FAULTS`, "cut" or the status with which an upload is refused; `files`
    are those of another server than the Hub; `requests` has what was asked.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories, self.files, self.requests, self.fault = {}, {}, [], None

    def commit(self, repository, files):
        """Adds a commit; returns its id."""
        commits = self.repositories.setdefault(repository, [])
        commits.append({**(commits[-1] if commits else {}), **files})
        return commit_id(len(commits))


def commit_id(number):
    return hashlib.sha1(str(number).encode()).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        hub, path = self.server, urllib.parse.unquote(self.path)
        hub.requests.append(f"{self.command} {path}")
        if path in hub.files:
            return self.answer(hub.files[path])
        if "/resolve/" not in path:
            return self.answer(b"", 404)
        user, model, _, revision, file = path.strip("/").split("/", 4)
        fault = hub.fault if hub.fault in FAULTS else None
        commits = hub.repositories.get(f"{user}/{model}")
        number = {commit_id(n): n for n in range(1, len(commits or []) + 1)}.get(revision)
        number = len(commits or []) if revision == "main" else number
        if commits is None:
            fault = "no repository"
        elif number is None:
            fault = "no revision"
        elif number == 0 or file not in commits[number - 1]:
            fault = "no file"
        if fault:
            status, code = FAULTS[fault]
            return self.answer(b"", status, {"X-Error-Code": code})
        content = commits[number - 1][file]
        etag = hashlib.sha1(content).hexdigest()
        self.answer(content, 200, {"X-Repo-Commit": commit_id(number), "ETag": f'"{etag}"'})

    do_HEAD = do_GET

    def do_POST(self):
        hub, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        hub.requests.append(f"{self.command} {self.path} {body[:200].decode(errors='replace')}")
        if isinstance(hub.fault, int):
            return self.answer(b"{}", hub.fault)
        user, model, action = self.path.split("/")[3:6] if "/models/" in self.path else "   "
        if self.path == "/api/repos/create":
            repository = "{organization}/{name}".format(**json.loads(body))
            status = 409 if repository in hub.repositories else 200
            hub.repositories.setdefault(repository, [])
            return self.say({"url": f"{hub.url}/{repository}"}, status)
        if self.path == "/api/validate-yaml":
            return self.say({"errors": [], "warnings": []})
        if action == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            return self.say({"files": [{"path": name, **modes} for name in names]})
        lines = [json.loads(line) for line in body.splitlines()]
        files = [line["value"] for line in lines if line["key"] == "file"]
        content = {file["path"]: base64.b64decode(file["content"]) for file in files}
        identity = hub.commit(f"{user}/{model}", content)
        url = f"{hub.url}/{user}/{model}/commit/{identity}"
        self.say({"commitUrl": url, "commitOid": identity, "success": True})

    def say(self, content, status=200):
        self.answer(json.dumps(content).encode(), status, {"Content-Type": "application/json"})

    def answer(self, content, status=200, headers=None):
        length, is_file = len(content), self.command == "GET"
        if self.server.fault == "cut" and is_file:
            content = content[: length // 2]
            if "ETag" in (headers or {}):  # huggingface_hub would ask for the rest, for ever
                length = len(content)
        self.send_response(status)
        for name, value in {"Content-Length": length, **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextlib.contextmanager
def running_hub(monkeypatch, cache):
    """A `Hub` that huggingface_hub asks in this process, with a cache and a token of its own."""
    with Hub() as hub:
        threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        close_session()  # it would keep the proxies that it began with
        yield hub
        hub.shutdown()
