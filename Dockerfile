# A server for saved models on a CPU; docs/serving.md says how to run it.
FROM python:3.12-slim
RUN useradd --create-home server
COPY . /src
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -r /src/requirements-lean.txt fastapi prometheus-client uvicorn \
    && pip install --no-cache-dir --no-deps /src \
    && rm -r /src
USER server
WORKDIR /srv
ENV KERAS_BACKEND=torch
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8000/ready')"]
ENTRYPOINT ["keras-transformer", "serve", "--host", "0.0.0.0"]
CMD ["dates"]
