"""The command `serve`: names, addresses, signals, clients of other toolkits, hostile clients."""

import concurrent.futures
import contextlib
import json
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from servers import wait_until

import keras_transformer as kt
from keras_transformer.cli import main
from keras_transformer.cli.serve import listen
from keras_transformer.serving.models import load_models
from keras_transformer.tasks import pretrained

HERE = pathlib.Path(__file__).parent
DATES = pretrained.FOLDER / "dates.keras"
NIGHTLY = "the nightly job installs it"


def test_a_model_is_named_by_its_file_its_folder_or_the_user(tmp_path):
    run = tmp_path / "en-de"
    run.mkdir()
    shutil.copy(DATES, run / "model.keras")
    shutil.copy(DATES, tmp_path / "best.keras")
    names = [str(run / "model.keras"), str(tmp_path / "best.keras"), "dates", "mine=dates"]
    models = load_models(names)
    assert list(models) == ["en-de", "best", "dates", "mine"]
    assert models["mine"].translate(["May 1, 1999"]) == ["1999-05-01"]
    with pytest.raises(ValueError, match="different names, as NAME=FILE; received name='dates'"):
        load_models(["dates", "dates"])


def test_a_port_that_is_taken_is_told_in_one_sentence():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SystemExit, match=f"^Cannot listen to port {port} of 127.0.0.1: .*--port"
        ):
            main(["serve", "dates", "--port", str(port)])


@pytest.mark.parametrize(
    "options, message",
    [
        (["--port", "70000"], "--port must be from 0 to 65535; received port=70000"),
        (["--max-texts", "0"], "max_texts must be an integer of at least 1; received max_texts=0"),
        (["--timeout", "nan"], "timeout must be above 0; received timeout=nan"),
    ],
)
def test_an_option_out_of_range_ends_the_command(options, message):
    with pytest.raises(SystemExit, match=message):
        main(["serve", "dates", *options])


def test_without_the_extra_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit, match=r'Install it: pip install "keras3-transformer\[serve\]"'):
        main(["serve", "dates"])


# In a process of its own


@contextlib.contextmanager
def serving(code, *options):
    """A server as a process, and its address."""
    command = [sys.executable, "-c", code, "serve", *options, "--port", "0"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with concurrent.futures.ThreadPoolExecutor() as threads:
            log = threads.submit(process.stderr.read)  # else it would wait for a reader
            line = process.stdout.readline()
            address = line.partition(" at ")[2].partition(" ")[0]
            if not address:
                process.kill()
                raise AssertionError(log.result())
            wait_until(lambda: status(f"{address}/ready") == 200)
            try:
                yield process, address, log
            finally:
                process.kill()
    finally:
        process.kill()
        process.communicate()


def status(url):
    """200, the status of an error, or None if nothing listens."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def post(address, path, question):
    request = urllib.request.Request(f"{address}{path}", json.dumps(question).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


COMMAND = "from keras_transformer.cli import main; main()"


@pytest.mark.slow
def test_clients_of_libretranslate_and_openai_get_the_answers_of_the_tasks():
    libretranslatepy = pytest.importorskip("libretranslatepy", reason=NIGHTLY)
    openai = pytest.importorskip("openai", reason=NIGHTLY)
    models = ["en-iso=dates", "shakespeare", "--api-key", "key", "--max-compiled", "1"]
    with serving(COMMAND, *models) as (_, address, _):
        client = libretranslatepy.LibreTranslateAPI(address, api_key="key")
        assert client.translate("April 22, 2019", "en", "iso") == "2019-04-22"
        assert {each["code"] for each in client.languages()} == {"en", "iso"}
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="key", max_retries=0)
        assert [model.id for model in client.models.list()] == ["shakespeare"]
        question = dict(model="shakespeare", prompt="ROMEO:", max_tokens=30, seed=3)
        (text,) = kt.load("shakespeare").generate(["ROMEO:"], 30, seed=3)
        text = text.removeprefix("ROMEO:")
        assert client.completions.create(**question).choices[0].text == text
        chunks = client.completions.create(**question, stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == text
        with pytest.raises(openai.NotFoundError, match="There is no TextGenerator 'other'"):
            client.completions.create(**question | {"model": "other"})
        with pytest.raises(openai.AuthenticationError, match="Send the API key"):
            client.with_options(api_key="other").models.list()


WAITING = f"""
import sys, threading
sys.path.insert(0, {str(HERE)!r})
from servers import Classifier
from keras_transformer import backend
from keras_transformer.serving import models
from keras_transformer.cli import main

backend.num_cores = lambda: 1  # one batch at a time
task = Classifier()
models.load_models = lambda names, engine: {{"model": task}}

def obey():
    for line in sys.stdin:
        {{"stop": task.go.clear, "go": task.go.set}}[line.strip()]()
        print("done", flush=True)

threading.Thread(target=obey, daemon=True).start()
main()
"""


@pytest.mark.slow
@pytest.mark.once
def test_at_sigterm_every_accepted_request_is_answered_before_the_end():
    with (
        serving(WAITING, "model", "--max-batch", "1") as (process, address, log),
        concurrent.futures.ThreadPoolExecutor(8) as threads,
    ):

        def order(word):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        order("stop")
        asked = [
            threads.submit(post, address, "/api/classify", {"texts": [f"text {n}"]})
            for n in range(8)
        ]
        wait_until(lambda: 'waiting_texts{model="model"} 7.0' in metrics(address))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: status(f"{address}/health") is None)  # nothing more is accepted
        order("go")
        answers = [each.result()["answers"] for each in asked]
        assert answers == [[{"label": f"text {n}"}] for n in range(8)]
        assert process.wait() in (0, -signal.SIGTERM)
        assert "Traceback" not in log.result()


def hostile(random):
    """The bytes of a request that no client should send."""
    body = random.choice(
        [
            random.randbytes(random.randrange(3000)),
            b"[" * random.randrange(200_000),
            b'{"texts": ["' + b"secret \\u0000 " * random.randrange(9000) + b'"]}',
            b'{"texts": [' + b'"secret",' * random.randrange(100_000) + b'""]}',
            b'{"texts": ["secret"], "beams": ' + b"9" * random.randrange(1, 9000) + b"}",
            b'{"texts": {"secret": ["' + random.randbytes(9).hex().encode() + b'"]}}',
            b'{"texts": ["secret"], "model": "../../secret"}',
            b'{"texts": ["secret"], "stream": true, "max_tokens": 2000}',
            b'{"text": "' + b"secret " * random.randrange(900) + b'"}',
        ]
    )
    path = random.choice(
        "/api/translate /api/generate /api/attention /v1/completions /translate /%00".split()
    )
    kind = random.choice(["application/json", "text/plain", "application/x-www-form-urlencoded"])
    length = random.choice([len(body)] * 8 + [0, 10**12, -1])
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
    )
    whole = head.encode() + b"\r\n" + body
    return random.choice([whole] * 5 + [random.randbytes(500), whole[: len(whole) // 2]])


@pytest.mark.slow
def test_2000_hostile_requests_leave_no_error_no_work_no_memory_and_no_text_in_the_log():
    models = ["dates", "shakespeare", "--timeout", "5", "--max-compiled", "1"]
    with serving(COMMAND, *models) as (process, address, log):
        host, port = address.removeprefix("http://").split(":")

        def attack(seed):
            chance = random.Random(seed)
            with (
                contextlib.suppress(OSError),
                socket.create_connection(
                    (host, int(port)), timeout=chance.choice([0.01, 1, 10])
                ) as s,
            ):
                s.sendall(hostile(chance))
                s.recv(chance.choice([1, 65536]))  # then it leaves, perhaps in a stream

        def attacks(seeds):
            with concurrent.futures.ThreadPoolExecutor(16) as threads:
                list(threads.map(attack, seeds))

        attacks(range(500))
        before = memory(process.pid)
        attacks(range(500, 2000))
        assert memory(process.pid) < before + 200 * 2**20
        busy = re.compile(r"^keras_transformer_(waiting_texts|streams)\S+ [^0]", re.MULTILINE)
        wait_until(lambda: not busy.search(metrics(address)))

        def answered():
            try:
                answer = post(address, "/api/translate", {"texts": ["May 1, 1999"]})
            except urllib.error.HTTPError as error:
                if error.code == 504:  # the last batch of the attack is still being computed
                    return False
                raise
            return answer["answers"] == ["1999-05-01"]

        wait_until(answered)
        assert 'status="500"' not in metrics(address) and 'status="422"' in metrics(address)
        process.send_signal(signal.SIGTERM)
        process.wait()
        assert "secret" not in log.result() and "Traceback" not in log.result()


def memory(pid):
    """int, the bytes that a process holds."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text("utf-8")
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def metrics(address):
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as page:
        return page.read().decode()


@pytest.mark.slow
def test_a_fuzzer_of_the_openapi_page_finds_no_error(tmp_path):
    pytest.importorskip("schemathesis", reason=NIGHTLY)
    with serving(COMMAND, "dates", "shakespeare", "--max-compiled", "1") as (_, address, _):
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"]
        command += ["--checks", "not_a_server_error", "--max-examples", "20", "--seed", "1"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=tmp_path)
        # Its own time limit of a request does not count: some answers take longer.
        assert "Tested: " in result.stdout, result.stdout[-3000:]
        assert 'status="500"' not in metrics(address), result.stdout[-3000:]
