"""Models by address: fetched, cached, and refused in one sentence that leaves nothing behind."""

import errno
import hashlib
import http.client
import pathlib
import sys
import urllib.error
import urllib.request

import keras
import pytest
from hubs import running_hub
from huggingface_hub import constants

import keras_transformer as kt
from keras_transformer.cli import main
from keras_transformer.serving import models
from keras_transformer.tasks import saved_files

pytestmark = pytest.mark.once

SAVED = pathlib.Path(__file__).parents[1] / "saved_by_0.1.0"
TAGGER, CLASSIFIER = ((SAVED / f"{name}.keras").read_bytes() for name in ("tagger", "classifier"))
MODEL = "hf://user/tagger"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with running_hub(monkeypatch, tmp_path / "hub") as hub:
        yield hub


def url_of(content, name="tagger.keras"):
    return f"https://example.org/{name}#sha256={hashlib.sha256(content).hexdigest()}"


class Plain(urllib.request.HTTPSHandler):
    """Sends what is meant for https://example.org to a server on this machine."""

    def __init__(self, port):
        super().__init__()
        self.port = port

    def https_open(self, request):
        if self.port is None:
            raise OSError("Network is unreachable")
        request.host = f"127.0.0.1:{self.port}"
        return self.do_open(http.client.HTTPConnection, request)


@pytest.fixture
def server(hub, monkeypatch, tmp_path):
    """The stand-in as another server than the Hub, whose only file is /tagger.keras."""
    opener = urllib.request.build_opener(Plain(hub.server_port))
    monkeypatch.setattr(urllib.request, "_opener", opener)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    hub.files["/tagger.keras"] = TAGGER
    return hub


def files_in(folder):
    """The files of a cache that hold content; huggingface_hub also keeps names of commits."""
    files = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    small = ("CACHEDIR.TAG", "main")
    return [path for path in files if path.name not in small and path.suffix != ".lock"]


def one_sentence(error):
    text = str(error.value)
    assert text.endswith(".") and text.count(". ") <= 1 and "\n" not in text
    return text


def test_a_model_of_the_hub_is_fetched_once_and_checked_like_a_file(hub):
    hub.commit("user/tagger", {"model.keras": TAGGER})
    assert kt.check_file(MODEL) == kt.check_file(SAVED / "tagger.keras") == kt.check_file(MODEL)
    fetched = [each for each in hub.requests if each.startswith("GET /user")]
    assert fetched == ["GET /user/tagger/resolve/main/model.keras"]


def test_a_revision_keeps_its_file(hub):
    first = hub.commit("user/model", {"model.keras": TAGGER})
    hub.commit("user/model", {"model.keras": CLASSIFIER})
    assert kt.check_file("hf://user/model").task == "Classifier"
    assert kt.check_file(f"hf://user/model@{first}").task == "Tagger"


def test_a_cached_model_needs_no_network(hub, monkeypatch):
    hub.commit("user/tagger", {"model.keras": TAGGER})
    kt.check_file(MODEL)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert kt.check_file(MODEL).task == "Tagger"


@pytest.mark.parametrize("door", [kt.check_file, kt.load])
@pytest.mark.parametrize(
    "address, fault, message",
    [
        ("hf://user/none", None, "there is no such repository, or it is private"),
        (f"{MODEL}@v2", None, "there is no such revision"),
        ("hf://user/empty", None, "the repository has no model.keras"),
        (MODEL, "no access", "its owner must grant you access"),
        (MODEL, "cut", "the transfer failed .*should be of size"),
    ],
)
def test_what_the_hub_does_not_give_is_one_sentence(hub, tmp_path, door, address, fault, message):
    hub.commit("user/tagger", {"model.keras": TAGGER})
    hub.commit("user/empty", {"weights.h5": b"abc"})
    hub.fault = fault
    with pytest.raises(OSError, match=f"^{address}: {message}") as error:
        door(address)
    one_sentence(error)
    assert not files_in(tmp_path)


def test_a_model_that_is_not_cached_needs_a_network(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=f"^{MODEL}: it is not in the cache, and the Hub") as error:
        kt.check_file(MODEL)
    one_sentence(error)
    assert not files_in(tmp_path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A .keras file that holds no task."""
    path = tmp_path_factory.mktemp("foreign") / "model.keras"
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("door", [kt.check_file, kt.load])
@pytest.mark.parametrize("kind", ["not a zip", "of another package"])
def test_a_foreign_file_leaves_the_caches(server, foreign, tmp_path, door, kind):
    content = foreign if kind == "of another package" else b"<html>"
    message = "holds keras.*expected a task" if content == foreign else "File is not a zip file"
    server.commit("user/tagger", {"model.keras": content})
    server.files["/tagger.keras"] = content
    for address in (MODEL, url_of(content)):
        with pytest.raises(ValueError, match=f"{address} cannot be loaded: .*{message}") as error:
            door(address)
        one_sentence(error)
    assert not files_in(tmp_path / "hub") and not files_in(tmp_path / "keras")


@pytest.mark.parametrize("door", [kt.check_file, kt.load])
def test_a_file_that_needs_a_package_stays_in_the_cache(server, tmp_path, monkeypatch, door):
    def missing(file):
        raise ImportError("a byte-level vocabulary needs the package tokenizers")

    with monkeypatch.context() as patch:
        patch.setattr(saved_files, "_checked", missing)
        with pytest.raises(ValueError, match="cannot be loaded: a byte-level vocabulary needs the"):
            door(url_of(TAGGER))
    assert len(files_in(tmp_path / "keras")) == 1
    door(url_of(TAGGER))
    assert server.requests == ["GET /tagger.keras"]


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.EMFILE, "Too many open files"), RuntimeError("no room")]
)
def test_a_file_that_is_intact_stays_in_the_cache(
    server, small_tasks, tmp_path, monkeypatch, error
):
    small_tasks["tagger"].save(tmp_path / "tagger.keras")
    content = (tmp_path / "tagger.keras").read_bytes()
    server.files["/tagger.keras"] = content

    def fail(*given, **options):
        raise error

    doors = {"task": (keras.saving, "load_model", kt.load)}
    if not isinstance(error, RuntimeError):  # of Keras, when the file has been checked
        doors["file"] = (saved_files, "_checked", kt.check_file)
    for module, name, door in doors.values():
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            reason = getattr(error, "strerror", None) or str(error) or "MemoryError"
            with pytest.raises(ValueError, match=f"cannot be (read|loaded): .*{reason}") as refused:
                door(url_of(content))
            one_sentence(refused)
        assert len(files_in(tmp_path / "keras")) == 1
    kt.load(url_of(content))


def test_a_url_with_its_checksum_is_fetched_once(server):
    for _ in range(2):
        assert kt.check_file(url_of(TAGGER)) == kt.check_file(SAVED / "tagger.keras")
    assert server.requests == ["GET /tagger.keras"]


def test_a_damaged_file_in_the_cache_is_fetched_again(server, tmp_path):
    kt.check_file(url_of(TAGGER))
    (cached,) = files_in(tmp_path / "keras")
    assert cached.name == url_of(TAGGER)[-64:] + ".keras"  # no name that the server chose
    cached.write_bytes(TAGGER[:1000])
    assert kt.check_file(url_of(TAGGER)).task == "Tagger"
    assert len(server.requests) == 2


@pytest.mark.parametrize("door", [kt.check_file, kt.load])
@pytest.mark.parametrize(
    "address, fault, message",
    [
        (url_of(TAGGER, "none.keras"), None, "the transfer failed .HTTP Error 404"),
        (url_of(TAGGER), "cut", "the transfer failed "),
        (url_of(b"other"), None, "The file at {} must have the SHA-256 of its address"),
    ],
)
def test_a_url_that_does_not_give_its_file_is_one_sentence(
    server, tmp_path, door, address, fault, message
):
    server.fault = fault
    url = address.partition("#")[0]
    with pytest.raises((OSError, ValueError), match=message.format(url)) as error:
        door(address)
    assert url in one_sentence(error)
    assert not files_in(tmp_path)


def test_a_url_needs_a_network(server, tmp_path, monkeypatch):
    monkeypatch.setattr(urllib.request, "_opener", urllib.request.build_opener(Plain(None)))
    with pytest.raises(OSError, match="^https://example.org/tagger.keras: .*unreachable") as error:
        kt.check_file(url_of(TAGGER))
    one_sentence(error)
    assert not files_in(tmp_path)


@pytest.mark.parametrize(
    "address",
    "hf://user hf://user/.. hf://user/a/b hf://user/a@../../b hf://user/a@ http://a.org/b.keras "
    "s3://a/b".split(),
)
def test_another_form_of_an_address_is_refused(hub, address):
    with pytest.raises(ValueError, match=r"^An address is hf://USER/MODEL\[@REVISION\] or https"):
        kt.check_file(address)
    assert not hub.requests


@pytest.mark.parametrize("checksum", ["", "#sha256=123", f"#md5={'0' * 64}"])
def test_a_url_without_checksum_says_how_to_state_it(server, checksum):
    with pytest.raises(ValueError, match=r"must end in #sha256= and the 64 digits that sha256sum"):
        kt.check_file(f"https://example.org/tagger.keras{checksum}")
    assert not server.requests


def test_the_hub_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r'hf://user/tagger needs .*"keras3-transformer\[hub\]"'):
        kt.check_file(MODEL)


def test_commands_take_addresses(server, tmp_path, capsys):
    server.commit("user/tagger", {"model.keras": TAGGER})
    exported = str(tmp_path / "exported")
    for words, answer in (
        (["check", MODEL], "Tagger"),
        (["check", url_of(TAGGER)], "Tagger"),
        (["predict", MODEL, "a"], "a/"),
        (["export", MODEL, "--format", "safetensors", "--output", exported], exported),
    ):
        main(words)
        assert answer in capsys.readouterr().out


def test_a_corpus_takes_its_vocabulary_from_an_address(hub, tmp_path, capsys):
    pytest.importorskip("array_record")
    hub.commit("user/generator", {"model.keras": (SAVED / "text_generator.keras").read_bytes()})
    (tmp_path / "texts").write_text("abc\n")
    folder, texts = str(tmp_path / "corpus"), str(tmp_path / "texts")
    main(["prepare", folder, "--texts", texts, "--vocabulary-from", "hf://user/generator"])
    assert f"{folder} holds 1 texts" in capsys.readouterr().out


def test_a_server_names_a_model_by_its_address(monkeypatch):
    monkeypatch.setattr(saved_files, "load", lambda address: address)
    url = url_of(TAGGER, "some-v1.5.keras")
    named = {"zh-en": "hf://user/zh-en@v1.0", "some-v1.5": url, "mine": url, "dates": "dates"}
    given = [named["zh-en"], url, f"mine={url}", "dates"]
    assert models.load_models(given) == named
