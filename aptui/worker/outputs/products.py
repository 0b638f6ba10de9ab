"""Products of a run: the folders in which they are made, and the check of each product that a builder claims to have made.

A builder is not trusted. A product must exist, be a regular file (not a link), and have a unique name and sub id. No process may
have it open for writing. The product is hashed here, and synced when it is committed. After the check, only the file in the staging
folder is used.

The runs of a worker use the same folders, because making and removing folders for every run takes as long as a short command. Files
that a run leaves in them are removed. The folders are reused only if they are still the original folders and no files were added
beside them. So a run cannot leave files for the next run. All processes of the earlier run have ended by then
(`worker.processes.end_children`).

Tests: `tests/worker/outputs/test_workspace.py`.
"""

from __future__ import annotations

import os
import shutil
import stat
import zlib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.orders import ProcessOrder, StagedProduct
from aptui.core.paths import as_text, name_beside, normalize, os_path
from aptui.core.project import COMMON_PLATFORM
from aptui.sdk import JobProduct, ProductFlag
from aptui.shared.files.replacing import is_being_written
from aptui.worker import file_access
from aptui.worker.answers import AnswerRefused

# A sub id identifies a product among the products of its source. Builders choose sub ids, or `fill_sub_ids` sets their defaults.
# All sub ids are checked.


def fill_sub_ids(products: Sequence[JobProduct]) -> None:
    """Give each product without a sub id its default.

    The default is 0 for a single product, otherwise the CRC-32 of the product's file name in lower case.
    """
    for product in products:
        if product.sub_id is None:
            name = os.fsencode(os.path.basename(str(product.path)).lower())
            product.sub_id = 0 if len(products) == 1 else zlib.crc32(name)


def _check_unique(product: JobProduct, name: str, names: dict[str, str], paths: dict[int, str]) -> int:
    """Refuse a product whose name or sub id is used already; otherwise add it to `names` {name: path} and `paths` {sub id: path}.

    Return its sub id.
    """
    if name in names:
        raise AnswerRefused(f"products {names[name]!r} and {product.path!r} have the same name {name!r}")
    names[name] = product.path
    if not isinstance(product.sub_id, int) or not 0 <= product.sub_id < 1 << 32:
        raise AnswerRefused(f"product {product.path!r} has the sub id {product.sub_id!r}, which is not a number of 32 bits")
    if product.sub_id in paths:
        raise AnswerRefused(f"products {paths[product.sub_id]!r} and {product.path!r} have the same sub id {product.sub_id}")
    paths[product.sub_id] = product.path
    return product.sub_id


NAME_BYTES = 255
"""Maximum length of a file name on Linux file systems (NAME_MAX, bytes)."""
_READABLE = 0o644
_FORBIDDEN_MODES = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX | stat.S_IWOTH
"""Mode bits that a product must not have: set-id, sticky, and writable by all users."""
_KIND_BITS = ProductFlag.PRODUCT | ProductFlag.INTERMEDIATE


class StagingFolders(Struct, frozen=True):
    """The folders of one run; all are below `staging`."""

    staging: str

    @property
    def products(self) -> str:
        """Folder into which the builder writes its products."""
        return f"{self.staging}/products"

    @property
    def temp(self) -> str:
        """Folder for the builder's other files; it is also the builder's current folder."""
        return f"{self.staging}/temp"

    @property
    def trace(self) -> str:
        """Folder for strace's record of a running command."""
        return f"{self.staging}/trace"

    def refuse_others(self) -> None:
        """Refuse the products if the run has replaced one of the folders by a link or another file.

        Raises:
            AnswerRefused: a folder was replaced.
        """
        for path in (self.staging, self.products, self.temp):
            try:
                is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
            except FileNotFoundError:
                continue
            if not is_folder:
                raise AnswerRefused(f"the run replaced its folder {os.path.basename(path)!r}")

    def make(self) -> None:
        """Create the folders, with missing parents."""
        try:
            os.mkdir(self.staging)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(self.staging)
        os.mkdir(self.products)
        os.mkdir(self.temp)


def remove_tree(path: str) -> None:
    """Remove a folder and all its contents; the next start of the engine removes the files that are left after an error."""
    try:
        os.rmdir(path)  # nearly all removed folders are empty, and this call is faster
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def discard(staged: str) -> None:
    """Remove the staged files of a run: one file, or a folder."""
    try:
        os.unlink(staged)
    except FileNotFoundError:
        pass
    except OSError:
        remove_tree(staged)


def stage_products(products: Sequence[JobProduct], folders: StagingFolders, order: ProcessOrder) -> tuple[StagedProduct, ...]:
    """Check, place and hash the products of a run.

    Products in folders that several runs use are moved to the staging path of the run.

    Raises:
        AnswerRefused: a product is missing or not valid; the text names the file.
    """
    folders.refuse_others()
    names: dict[str, str] = {}
    sub_ids: dict[int, str] = {}
    staged = []
    for product in products:
        if not isinstance(product, JobProduct):
            raise AnswerRefused(f"the builder returned {type(product).__name__} as a product, not a JobProduct")
    fill_sub_ids(products)
    for index, product in enumerate(products):
        name = _product_name(product.path, _beside(product, order.rel))
        _check_flags(product, order.platform)
        sub_id = _check_unique(product, name, names, sub_ids)
        try:
            staged.append(_stage(product, name, sub_id, index, folders))
        except file_access.FileChanged as error:
            raise AnswerRefused(f"product {product.path!r}: {error}") from error
        except OSError as error:
            raise AnswerRefused(f"product {product.path!r} cannot be staged: {file_access.reason(error)}") from error
    if folders.staging != os_path(order.staging):
        staged = _move_staged(staged, os_path(order.staging))
    return tuple(staged)


def _move_staged(staged: Sequence[StagedProduct], place: str) -> list[StagedProduct]:
    """Move the staged files to `place`. A single file gets exactly this path, like a file that a copy job stages.

    Several files are moved into a folder at this path.
    """
    targets = [place]
    try:
        if len(staged) != 1:
            os.mkdir(place)
            targets = [f"{place}/{index}" for index in range(len(staged))]
        for product, target in zip(staged, targets, strict=True):
            os.rename(os_path(product.staged), target)
    except OSError as error:
        raise AnswerRefused(f"products cannot be staged: {file_access.reason(error)}") from error
    return [replace(product, staged=as_text(target)) for product, target in zip(staged, targets, strict=True)]


def _beside(product: JobProduct, rel: str) -> str:
    """Return the path beside which the product is placed.

    This is the path of the source, unless the builder sets another folder for the product.
    """
    if not product.folder:
        return rel
    if product.flags & ProductFlag.PRODUCT:
        raise AnswerRefused(
            f"product {product.path!r} sets the folder {product.folder!r}, but only intermediate products can set a folder"
        )
    folder = normalize(product.folder)
    if not folder or product.folder.startswith("/") or folder.split("/")[0] == "..":
        raise AnswerRefused(f"product {product.path!r}: {product.folder!r} is not a folder relative to the scan folders")
    return f"{as_text(folder)}/-"


def _product_name(path: str, rel: str) -> str:
    name = os.path.basename(path)
    if not name or name in (".", ".."):
        raise AnswerRefused(f"product {path!r} has no file name")
    if any(ord(character) < 32 or character == "\x7f" for character in name):
        raise AnswerRefused(f"product {path!r} has control characters in its name")
    lower = as_text(name).lower()
    if len(os.fsencode(lower)) > NAME_BYTES:
        raise AnswerRefused(f"product {path!r} has a name longer than {NAME_BYTES} bytes")
    return name_beside(rel, lower)


def _check_flags(product: JobProduct, platform: str) -> None:
    kind = product.flags & _KIND_BITS
    if kind not in (ProductFlag.PRODUCT, ProductFlag.INTERMEDIATE):
        raise AnswerRefused(f"product {product.path!r} must be flagged either PRODUCT or INTERMEDIATE")
    if (kind == ProductFlag.INTERMEDIATE) != (platform == COMMON_PLATFORM):
        what = "intermediate products need" if kind == ProductFlag.INTERMEDIATE else "only intermediate products can have"
        raise AnswerRefused(
            f"product {product.path!r}: {what} the platform {COMMON_PLATFORM!r}; the platform of this job is {platform!r}"
        )


def _stage(product: JobProduct, name: str, sub_id: int, index: int, folders: StagingFolders) -> StagedProduct:
    path = os.path.normpath(os.path.join(folders.products, product.path))
    is_ours = path.startswith((f"{folders.products}/", f"{folders.temp}/"))
    if not is_ours and not os.path.isabs(product.path):
        raise AnswerRefused(f"product {product.path!r} is outside the folder for products")
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise AnswerRefused(f"product {product.path!r} does not exist") from None
    if stat.S_ISLNK(found.st_mode) or (is_ours and _is_behind_link(path, folders)):
        raise AnswerRefused(f"product {product.path!r} is a link, or in a folder behind a link")
    if not stat.S_ISREG(found.st_mode):
        raise AnswerRefused(f"product {product.path!r} is not a regular file")
    if is_ours and not found.st_mode & stat.S_IRUSR:  # a builder may set a umask that makes its files unreadable
        os.chmod(path, _READABLE)
    elif is_ours and found.st_mode & _FORBIDDEN_MODES:
        os.chmod(path, stat.S_IMODE(found.st_mode) & ~_FORBIDDEN_MODES)
    staged = path
    if not is_ours or found.st_nlink > 1:
        # A second hard link could change the product long after it was committed.
        staged = f"{folders.staging}/copied-{index}"
        hashes = file_access.copy_into(path, staged, os.O_NOFOLLOW)
    else:
        if not path.startswith(f"{folders.products}/"):
            staged = f"{folders.staging}/moved-{index}"
            os.rename(path, staged)
        _check_closed(staged, product.path)
        hashes = file_access.hash_file(staged)[0]
    path, asset_type, flags = as_text(staged), product.asset_type.bytes, int(product.flags)
    return StagedProduct(path, name, sub_id, asset_type, flags, *hashes, is_executable=bool(found.st_mode & 0o111))


def _check_closed(path: str, shown: str) -> None:
    """Refuse a file that is still open for writing, perhaps in a thread of the builder.

    The file could change after the commit.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if is_being_written(descriptor):
            raise AnswerRefused(f"product {shown!r} is still open for writing")
    finally:
        os.close(descriptor)


def _is_behind_link(path: str, folders: StagingFolders) -> bool:
    parent = os.path.dirname(path)
    if parent in (folders.products, folders.temp):
        return False
    top = folders.products if path.startswith(f"{folders.products}/") else folders.temp
    return os.path.realpath(parent) != os.path.join(os.path.realpath(top), os.path.relpath(parent, top))


# --------------------------------------------------------------------------------- folders that all runs of a worker share

PREFIX = "worker-"
"""Prefix of the folders of workers; the process id follows."""

_Mark = tuple[int, int, int, int]


class ReusableWorkspace:
    """The folders of one worker, which its runs use one after another."""

    def __init__(self) -> None:
        self._folders: StagingFolders | None = None
        self._given_up_count = 0
        self._marks: tuple[_Mark, ...] = ()

    def for_run(self, staging: str, run_key: int) -> StagingFolders | None:
        """Return the folders that this worker uses for a run, None if the name of the run's folder `staging` is not its run key."""
        parent, name = os.path.split(staging)
        return StagingFolders(f"{parent}/{PREFIX}{os.getpid()}-{self._given_up_count}") if name == str(run_key) else None

    def prepare(self, folders: StagingFolders) -> None:
        """Prepare `folders` for a run: existing and empty.

        Raises:
            OSError: the folders cannot be made.
        """
        if folders == self._folders:
            return
        self.remove()
        remove_of_the_dead(os.path.dirname(folders.staging))
        folders.make()
        self._folders, self._marks = folders, _marks(folders)

    def release(self) -> None:
        """Empty the folders after a run, or remove them if the run changed the folders themselves."""
        if self._folders is not None and not self._is_as_made(self._folders):
            self.remove()

    def _is_as_made(self, folders: StagingFolders) -> bool:
        try:
            if _marks(folders) != self._marks:
                return False
            _empty(folders.products)
            _empty(folders.temp)
            return len(os.listdir(folders.staging)) == len(self._marks) - 1
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the folders."""
        if self._folders is not None:
            discard(self._folders.staging)  # a builder may have replaced the folder by a link
            self._folders = None
            self._given_up_count += 1  # the folder may still exist, so its name is not used again


def _marks(folders: StagingFolders) -> tuple[_Mark, ...]:
    """Return the identity and permissions of each folder."""
    found = [os.lstat(path) for path in (folders.staging, folders.products, folders.temp)]
    return tuple((item.st_ino, item.st_mode, item.st_uid, item.st_gid) for item in found)


def _empty(folder: str) -> None:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def remove_of_the_dead(parent: str) -> None:
    """Remove the folders that killed workers left."""
    for name in os.listdir(parent) if os.path.isdir(parent) else ():
        pid = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{pid}"):
            discard(f"{parent}/{name}")
