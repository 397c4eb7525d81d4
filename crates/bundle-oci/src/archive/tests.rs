use std::io::{Seek as _, SeekFrom, Write as _};

use bundle_core::reference::Digest;
use tar::{Builder, EntryType, Header};

use super::*;

fn header(name: &[u8], kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header
}

fn archive(build: impl FnOnce(&mut Builder<Vec<u8>>)) -> tempfile::NamedTempFile {
    let mut builder = Builder::new(Vec::new());
    build(&mut builder);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&builder.into_inner().unwrap()).unwrap();
    file
}

fn add(builder: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, content: &str) {
    let header = header(name.as_bytes(), kind, content.len() as u64);
    builder.append(&header, content.as_bytes()).unwrap();
}

fn mark(builder: &mut Builder<Vec<u8>>) {
    add(
        builder,
        layout::LAYOUT_FILE,
        EntryType::Regular,
        layout::MARK_CONTENT,
    );
}

#[test]
fn finds_offset_and_size_of_each_entry() {
    let file = archive(|builder| {
        mark(builder);
        add(builder, "./blobs/", EntryType::Directory, "");
        add(builder, "./index.json", EntryType::Regular, "{}");
        let long = format!("blobs/{}", "n".repeat(150));
        let mut header = Header::new_gnu();
        header.set_size(3);
        builder.append_data(&mut header, long, &b"abc"[..]).unwrap();
        builder
            .append_pax_extensions([("path", b"blobs/pax".as_slice()), ("size", b"4")])
            .unwrap();
        add(builder, "other", EntryType::Regular, "four");
    });
    assert!(is_archive(file.path()));
    let archive = Archive::open(file.path()).unwrap();
    let bytes = fs_err::read(file.path()).unwrap();
    for (name, content) in [
        ("index.json", "{}"),
        (&format!("blobs/{}", "n".repeat(150)), "abc"),
        ("blobs/pax", "four"),
    ] {
        let (part, size) = archive.part(name).unwrap();
        let from = usize::try_from(part.offset()).unwrap();
        let to = from + usize::try_from(size).unwrap();
        assert_eq!(&bytes[from..to], content.as_bytes(), "{name}");
    }
    assert!(archive.part("other").is_none());
}

#[test]
fn rejects_unsafe_archives_with_a_reason() {
    type Build = fn(&mut Builder<Vec<u8>>);
    let cases: [(Build, &str); 12] = [
        (|b| add(b, "blobs/a", EntryType::Symlink, ""), "is a link"),
        (|b| add(b, "blobs/a", EntryType::Link, ""), "is a link"),
        (
            |b| add(b, "dev", EntryType::Char, ""),
            "neither a file nor a folder",
        ),
        (
            |b| add(b, "pipe", EntryType::Fifo, ""),
            "neither a file nor a folder",
        ),
        (|b| add(b, "s", EntryType::GNUSparse, ""), "sparse"),
        (
            |b| add(b, "../up", EntryType::Regular, "x"),
            "outside of the archive",
        ),
        (
            |b| add(b, "/etc/passwd", EntryType::Regular, "x"),
            "outside of the archive",
        ),
        (
            |b| add(b, "a/../../b", EntryType::Regular, "x"),
            "outside of the archive",
        ),
        (
            |b| add(b, layout::LAYOUT_FILE, EntryType::Regular, "x"),
            "is a duplicate",
        ),
        (
            |b| add(b, "././@x", EntryType::XHeader, &"x".repeat(70_000)),
            "64 KiB",
        ),
        (
            |b| {
                b.append(&header(b"\xff", EntryType::Regular, 0), &b""[..])
                    .unwrap();
            },
            "not UTF-8",
        ),
        (
            |b| {
                b.append_pax_extensions([("size", b"99999999999".as_slice())])
                    .unwrap();
                add(b, "blobs/a", EntryType::Regular, "x");
            },
            "is truncated",
        ),
    ];
    for (build, why) in cases {
        let file = archive(|builder| {
            mark(builder);
            build(builder);
        });
        let finding = Archive::open(file.path()).unwrap_err();
        assert_eq!(finding.code, codes::registry::BAD_LAYOUT);
        assert!(finding.message.contains(why), "{finding}: {why}");
    }
}

#[test]
fn rejects_damaged_archives() {
    let whole = archive(|builder| {
        mark(builder);
        add(builder, "index.json", EntryType::Regular, &"x".repeat(2000));
    });
    let bytes = fs_err::read(whole.path()).unwrap();
    for (content, why) in [
        (&bytes[..1800], "is truncated"),
        (&bytes[..1024], "is truncated"),
        (b"\x1f\x8b compressed".repeat(100).as_slice(), "compressed"),
        (b"not a tar at all ".repeat(100).as_slice(), "not a tar"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let finding = Archive::open(file.path()).unwrap_err();
        assert!(finding.message.contains(why), "{finding}: {why}");
    }
}

#[test]
fn archive_does_not_depend_on_the_order_of_its_blobs() {
    let contents = ["one", "two", &"three".repeat(1000), ""];
    let sizes: BTreeMap<_, _> = contents
        .iter()
        .map(|text| (Digest::of(text.as_bytes()), text.len() as u64))
        .collect();
    let write = |order: &[&str]| {
        let plan = ArchivePlan::new(b"{}".to_vec(), sizes.clone());
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = fs_err::File::create(file.path()).unwrap();
        plan.begin(&mut out).unwrap();
        for text in order {
            let offset = plan.offset(&Digest::of(text.as_bytes())).unwrap();
            out.seek(SeekFrom::Start(offset)).unwrap();
            out.write_all(text.as_bytes()).unwrap();
        }
        file
    };
    let file = write(&contents);
    let mut backwards = contents;
    backwards.reverse();
    let bytes = fs_err::read(file.path()).unwrap();
    assert_eq!(bytes, fs_err::read(write(&backwards).path()).unwrap());
    // The `tar` crate must find the same entries as this module.
    let mut names = Vec::new();
    let mut tar = tar::Archive::new(bytes.as_slice());
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        if let Some(hex) = name.strip_prefix("blobs/sha256/") {
            assert_eq!(Digest::of(&content).hex(), hex);
        }
        names.push(name);
    }
    assert_eq!(names[..2], ["oci-layout", "index.json"]);
    assert_eq!(names.len(), 6);
    let archive = Archive::open(file.path()).unwrap();
    assert!(archive.part("index.json").is_some());
}
