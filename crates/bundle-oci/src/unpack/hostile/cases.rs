//! The attacks: names, kinds of entries, links, and shapes of images.

use bundle_testkit::UNSAFE_PATHS;
use tar::{EntryType as T, Header};

use super::*;

/// Returns all attacks.
pub(super) fn all() -> impl Iterator<Item = AttackCase> {
    let cases = [paths(), names(), kinds(), links(), shapes()];
    cases.into_iter().flatten()
}

/// Returns a case that both unpackers reject with the same reason.
fn refused(name: &'static str, entries: &[Vec<u8>], why: &'static str) -> AttackCase {
    AttackCase {
        name,
        layers: vec![layer(entries)],
        memory: Err(why),
        disk: Err(why),
    }
}

/// Returns a case that unpacking into memory rejects. `disk` is the result of unpacking to disk,
/// for images of workloads.
fn refused_in_memory(
    name: &'static str,
    layers: Vec<CompressedLayer>,
    memory: &'static str,
    disk: Result<&'static [&'static str], &'static str>,
) -> AttackCase {
    AttackCase {
        name,
        layers,
        memory: Err(memory),
        disk,
    }
}

fn paths() -> Vec<AttackCase> {
    let cases = UNSAFE_PATHS.map(|(path, why)| refused(path, &[file(path, b"x")], why));
    cases.into()
}

fn names() -> Vec<AttackCase> {
    let plain = |name: &[u8]| vec![entry(name, T::Regular, 0o644, b"x")];
    let deep = format!("{}x", "d/".repeat(130));
    let mut long = entry(b"././@LongLink", T::GNULongName, 0, &vec![b'a'; 2 << 20]);
    long.extend(file("short", b"x"));
    let mut gnu_up = entry(b"././@LongLink", T::GNULongName, 0, b"../../up\0");
    gnu_up.extend(file("innocent", b"x"));
    vec![
        refused("not UTF-8", &plain(b"a\xff"), "not UTF-8"),
        refused(
            "too deep",
            &plain(&deep.as_bytes()[..99]),
            "too many folders",
        )
        .disk_only_path(&["d/"]),
        refused("GNU long name of 2 MiB", &[long], "1 MiB of headers"),
        refused("GNU long name with ..", &[gnu_up], "`..`"),
        refused(
            "PAX path with ..",
            &[pax(T::XHeader, "path", "../up"), file("innocent", b"x")],
            "`..`",
        ),
        refused(
            "PAX path that is absolute",
            &[pax(T::XHeader, "path", "/up"), file("innocent", b"x")],
            "absolute",
        ),
        refused(
            "PAX path with NUL",
            &[pax(T::XHeader, "path", "a\0b"), file("innocent", b"x")],
            "control character",
        ),
        // The size in the record overrides the size in the header. The record declares 4096 bytes,
        // but the archive ends earlier.
        refused(
            "PAX size that is larger",
            &[pax(T::XHeader, "size", "4096"), file("a", b"x")],
            "cannot be read",
        ),
        // The record declares a size of 0. Therefore the content of the file is read as the next
        // header, which is invalid.
        refused(
            "PAX size that is smaller",
            &[pax(T::XHeader, "size", "0"), file("a", &[b'x'; 600])],
            "cannot be read",
        ),
        refused(
            "PAX records for every entry",
            &[pax(T::XGlobalHeader, "path", "up"), file("a", b"x")],
            "",
        ),
        refused(
            "PAX sparse file",
            &[pax(T::XHeader, "GNU.sparse.major", "1"), file("a", b"x")],
            "sparse file",
        ),
        refused("whiteout of ..", &[file("a/.wh...", b"")], "whiteout"),
        refused("whiteout of nothing", &[file(".wh.", b"")], "whiteout"),
    ]
}

impl AttackCase {
    /// Changes the expected result on disk to success, because images of workloads may have deeper
    /// folders than bundles.
    fn disk_only_path(mut self, _: &[&str]) -> Self {
        self.disk = Ok(&[]);
        self
    }
}

fn kinds() -> Vec<AttackCase> {
    let special = |kind| vec![entry(b"dev/x", kind, 0o644, b"")];
    let setuid = vec![layer(&[entry(b"sudo", T::Regular, 0o6777, b"x")])];
    vec![
        refused("character device", &special(T::Char), "device"),
        refused("block device", &special(T::Block), "device"),
        refused("named pipe", &special(T::Fifo), "named pipe"),
        refused("GNU sparse", &[sparse()], "sparse"),
        refused("unknown kind", &special(T::new(b'Q')), "neither"),
        refused_in_memory("setuid", setuid, "setuid", Ok(&["sudo"])),
    ]
}

/// Returns a GNU sparse file of 1 GiB, for which the archive contains 512 bytes.
fn sparse() -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_path("sparse").unwrap();
    header.set_entry_type(T::GNUSparse);
    header.set_mode(0o644);
    header.set_size(0);
    {
        let gnu = header.as_gnu_mut().unwrap();
        gnu.realsize.copy_from_slice(b"10000000000\0");
        gnu.sparse[0].offset.copy_from_slice(b"10000000000\0");
        gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
    }
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn links() -> Vec<AttackCase> {
    let soft = |name: &str, target: &str| link(name, T::Symlink, target);
    let hard = |name: &str, target: &str| link(name, T::Link, target);
    let one = |entries: &[Vec<u8>]| vec![layer(entries)];
    let outside = Err("outside of the folder");
    let no_link = "symbolic link";
    vec![
        refused_in_memory(
            "link",
            one(&[soft("l", "../../etc/passwd")]),
            no_link,
            outside,
        ),
        refused_in_memory(
            "absolute link",
            one(&[soft("d/l", "/etc/passwd")]),
            no_link,
            Ok(&["d/l"]),
        ),
        refused_in_memory(
            "file through a link",
            one(&[soft("l", "/tmp"), file("l/bundle-hostile", b"x")]),
            no_link,
            Err("a symbolic link"),
        ),
        refused_in_memory(
            "file through a link of a lower layer",
            vec![
                layer(&[soft("l", "..")]),
                layer(&[file("l/bundle-hostile", b"x")]),
            ],
            no_link,
            Err("a symbolic link"),
        ),
        refused_in_memory(
            "links that lead outside together",
            one(&[soft("a/b/c", "../.."), soft("d", "a/b/c/../x")]),
            no_link,
            outside,
        ),
        refused_in_memory(
            "link to itself",
            one(&[soft("a", "b"), soft("b", "a")]),
            no_link,
            outside,
        ),
        refused_in_memory(
            "link replaced by a file in the same layer",
            one(&[soft("l", "../up"), file("l", b"x")]),
            no_link,
            Err("appears twice"),
        ),
        refused_in_memory(
            "link replaced by a file of a later layer",
            vec![layer(&[soft("l", "../up")]), layer(&[file("l", b"x")])],
            no_link,
            Ok(&["l"]),
        ),
        refused_in_memory(
            "link replaced by a folder of a later layer",
            vec![layer(&[soft("l", "../up")]), layer(&[file("l/x", b"x")])],
            no_link,
            Err("a symbolic link"),
        ),
        refused_in_memory(
            "hard link outside",
            one(&[hard("h", "../../etc/passwd")]),
            "hard link",
            Err("`..`"),
        ),
        refused_in_memory(
            "hard link to nothing",
            one(&[hard("h", "etc/passwd")]),
            "hard link",
            Err("does not exist"),
        ),
        refused_in_memory(
            "hard link to a folder",
            one(&[file("d/a", b"x"), hard("h", "d")]),
            "hard link",
            Err("a folder"),
        ),
        refused_in_memory(
            "hard link to a link",
            one(&[soft("l", "../up"), hard("h", "l")]),
            no_link,
            outside,
        ),
        refused_in_memory(
            "hard links in a chain",
            one(&[file("a", b"x"), hard("b", "a"), hard("c", "b")]),
            "hard link",
            Ok(&["a", "b", "c"]),
        ),
        refused_in_memory(
            "hard link into what it replaces",
            vec![layer(&[file("d/a", b"x")]), layer(&[hard("d", "d/a")])],
            "hard link",
            Err("replaces"),
        ),
        refused_in_memory(
            "hard link, then another file above",
            vec![
                layer(&[file("a", b"one"), hard("b", "a")]),
                layer(&[file("b", b"two")]),
            ],
            "hard link",
            Ok(&["a", "b"]),
        ),
    ]
}

fn shapes() -> Vec<AttackCase> {
    let honest = layer(&[file("a", b"x")]);
    let with = |change: fn(&mut CompressedLayer)| {
        let mut sent = honest.clone();
        change(&mut sent);
        vec![sent]
    };
    let both = |name, layers: Vec<CompressedLayer>, why| AttackCase {
        name,
        layers,
        memory: Err(why),
        disk: Err(why),
    };
    let same = |name, entries: &[Vec<u8>], paths| AttackCase {
        name,
        layers: vec![layer(entries)],
        memory: Ok(paths),
        disk: Ok(paths),
    };
    let bomb = layer(&["a", "b"].map(|name| file(name, &vec![0; 6 << 20])));
    let many: Vec<u8> = (0..20_001)
        .flat_map(|i| file(&i.to_string(), b""))
        .collect();
    let many = CompressedLayer {
        diff_id: Digest::of(&many),
        bytes: many,
        media_type: media::LAYER_TAR,
    };
    vec![
        refused("twice", &[file("a", b"1"), file("a", b"2")], "twice"),
        refused(
            "file and folder",
            &[file("a", b"1"), entry(b"a/", T::Directory, 0o755, b"")],
            "",
        ),
        refused(
            "inside a file",
            &[file("a", b"1"), file("a/b", b"2")],
            "is inside",
        ),
        same(
            "upper and lower case",
            &[file("A", b"1"), file("a", b"2")],
            &["A", "a"],
        ),
        both(
            "entries after the end",
            {
                let tar = [archive(&[file("a", b"x")]), archive(&[file("../b", b"x")])].concat();
                vec![CompressedLayer {
                    bytes: gzip(&tar),
                    diff_id: Digest::of(&tar),
                    media_type: media::LAYER_GZIP,
                }]
            },
            "after the end",
        ),
        both(
            "cut gzip",
            with(|sent| {
                sent.bytes.truncate(sent.bytes.len() - 9);
            }),
            "cannot be read",
        ),
        both(
            "rubbish behind the gzip",
            with(|sent| sent.bytes.extend(b"rubbish")),
            "cannot be read",
        ),
        both(
            "a second gzip with an archive",
            with(|sent| {
                sent.bytes.extend(gzip(&archive(&[file("../b", b"x")])));
            }),
            "after the end",
        ),
        both(
            "gzip members without content",
            with(|sent| sent.bytes.extend(gzip(b"").repeat(2000))),
            "one gzip member for each 512 bytes",
        ),
        both(
            "wrong diff_id",
            with(|sent| sent.diff_id = Digest::of(b"")),
            "does not match its digest",
        ),
        both("bomb", vec![bomb], "200 times"),
        both("too many empty files", vec![many], "number of entries"),
        AttackCase {
            name: "whiteouts",
            layers: vec![
                layer(&[
                    file("gone", b"1"),
                    file("opaque/a", b"1"),
                    file("kept/a", b"1"),
                    file("both/a", b"1"),
                ]),
                layer(&[
                    file(".wh.gone", b""),
                    file("opaque/b", b"2"),
                    file("opaque/.wh..wh..opq", b""),
                    file("both/b", b"2"),
                    file(".wh.both", b""),
                    file(".wh.never-there", b""),
                ]),
            ],
            memory: Ok(&["both/b", "kept/a", "opaque/b"]),
            disk: Ok(&["both/b", "kept/a", "opaque/b"]),
        },
        refused_in_memory(
            "a whiteout through a link",
            vec![
                layer(&[link("l", T::Symlink, "..")]),
                layer(&[file("l/.wh.sentinel", b"")]),
            ],
            "symbolic link",
            Err("outside of the folder"),
        ),
    ]
}
