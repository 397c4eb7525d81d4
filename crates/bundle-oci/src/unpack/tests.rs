use std::io::Write;

use flate2::write::GzEncoder;
use tar::{EntryType, Header};

use super::*;

/// Returns an entry, written byte by byte, because the `tar` crate cannot create most of these
/// entries.
pub(super) fn entry(name: &[u8], kind: EntryType, mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    if matches!(kind, EntryType::Symlink | EntryType::Link) {
        header.set_size(0);
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    if header.size().unwrap() > 0 {
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes
}

pub(super) fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(name.as_bytes(), EntryType::Regular, 0o644, content)
}

pub(super) fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = entries.concat();
    tar.resize(tar.len() + 1024, 0);
    tar
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// Unpacks `layers`. Each layer is a pair of its uncompressed and its compressed bytes.
fn unpack_all(layers: &[(Vec<u8>, Vec<u8>)], limits: Limits) -> Result<Files, UnpackError> {
    let diff_ids: Vec<_> = layers.iter().map(|(tar, _)| Digest::of(tar)).collect();
    let config = serde_json::json!({ "rootfs": { "diff_ids": diff_ids } }).to_string();
    let descriptors: Vec<_> = layers
        .iter()
        .map(|(_, sent)| Descriptor::of(media::LAYER_GZIP, sent))
        .collect();
    let config_descriptor = Descriptor::of(media::CONFIG, config.as_bytes());
    let mut unpacking = Unpacker::new(&config_descriptor, config.as_bytes(), &descriptors, limits)?;
    for (index, (_, sent)) in layers.iter().enumerate() {
        unpacking.layer(index, sent.as_slice())?;
    }
    Ok(unpacking.finish())
}

fn unpack(entries: &[Vec<u8>]) -> Result<Files, UnpackError> {
    let tar = archive(entries);
    let sent = gzip(&tar);
    unpack_all(&[(tar, sent)], Limits::default())
}

fn small() -> Limits {
    Limits {
        file: 1000,
        total: 8000,
        entries: 5,
        layers: 2,
        ..Limits::default()
    }
}

#[test]
fn reads_layers_as_image_tools_write_them() {
    let files = unpack(&[
        entry(b"./", EntryType::Directory, 0o755, b""),
        entry(b"./manifests/", EntryType::Directory, 0o755, b""),
        file("./manifests/a.yaml", b"a: 1\n"),
        file("bundle.yaml", b""),
    ])
    .unwrap();
    let expected = Files::from([
        ("bundle.yaml".to_owned(), Vec::new()),
        ("manifests/a.yaml".to_owned(), b"a: 1\n".to_vec()),
    ]);
    assert_eq!(files, expected);
}

#[test]
fn rejects_and_names_entries_other_than_regular_files() {
    use EntryType as T;
    let cases: [(&[u8], T, u32, &str); 17] = [
        (b"/etc/passwd", T::Regular, 0o644, "has an absolute path"),
        (b"C:/x", T::Regular, 0o644, "has an absolute path"),
        (b"../up", T::Regular, 0o644, "has `..` in its path"),
        (
            b"manifests/../../up",
            T::Regular,
            0o644,
            "has `..` in its path",
        ),
        (b"..", T::Directory, 0o755, "has `..` in its path"),
        (b"/", T::Directory, 0o755, "has no name"),
        (b"a//b", T::Regular, 0o644, "has an empty component"),
        (b"a/./b", T::Regular, 0o644, "has an empty component"),
        (b"a\\b", T::Regular, 0o644, "has a backslash"),
        (b"a\nb", T::Regular, 0o644, "has a control character"),
        (b"a\xff", T::Regular, 0o644, "not UTF-8"),
        (b"link", T::Symlink, 0o777, "is a symbolic link"),
        (b"link", T::Link, 0o644, "is a hard link"),
        (b"null", T::Char, 0o644, "is a device"),
        (b"disk", T::Block, 0o644, "is a device"),
        (b"pipe", T::Fifo, 0o644, "is a named pipe"),
        (b"sudo", T::Regular, 0o4755, "is setuid"),
    ];
    for (name, kind, mode, why) in cases {
        let error = unpack(&[entry(name, kind, mode, b"")]).unwrap_err();
        assert!(
            matches!(&error, UnpackError::UnsafeEntry { why: said, .. } if said.contains(why)),
            "{name:?}: {error}"
        );
        assert_eq!(error.finding().code, codes::registry::UNSAFE_ENTRY);
    }
    let error = unpack(&[
        file("a", b""),
        entry(b"evil", EntryType::Symlink, 0o777, b""),
    ]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "the archive's entry `evil` is a symbolic link"
    );
}

#[test]
fn rejects_names_with_nul_in_extended_headers() {
    let record = b"17 path=a\0b/evil\n";
    let error = unpack(&[
        entry(b"pax", EntryType::XHeader, 0o644, record),
        file("harmless", b"x"),
    ])
    .unwrap_err();
    assert!(error.to_string().contains("control character"), "{error}");
}

#[test]
fn rejects_two_entries_for_one_path() {
    let error = unpack(&[file("a", b"1"), file("./a", b"2")]).unwrap_err();
    assert!(error.to_string().contains("`a` appears twice"), "{error}");
    let error = unpack(&[file("a", b"1"), file("a/b", b"2")]).unwrap_err();
    assert!(error.to_string().contains("`a/b` is inside `a`"), "{error}");
    let error = unpack(&[
        file("a", b"1"),
        entry(b"a/", EntryType::Directory, 0o755, b""),
    ])
    .unwrap_err();
    assert!(
        error.to_string().contains("both a file and a folder"),
        "{error}"
    );
}

#[test]
fn rejects_content_after_the_end_of_the_archive() {
    let mut tar = archive(&[file("a", b"1")]);
    tar.extend_from_slice(&file("b", b"2"));
    let sent = gzip(&tar);
    let error = unpack_all(&[(tar.clone(), sent)], Limits::default()).unwrap_err();
    assert!(error.to_string().contains("after the end"), "{error}");

    let tar = archive(&[file("a", b"1")]);
    let mut sent = gzip(&tar);
    sent.extend_from_slice(b"more");
    let error = unpack_all(&[(tar, sent)], Limits::default()).unwrap_err();
    assert!(matches!(error, UnpackError::Malformed { .. }), "{error}");
}

#[test]
fn rejects_damaged_layers() {
    let tar = archive(&[file("a", &[b'x'; 2000])]);
    for damaged in [tar[..1000].to_vec(), {
        let mut tar = tar.clone();
        tar[10] ^= 1;
        tar
    }] {
        let sent = gzip(&damaged);
        let error = unpack_all(&[(damaged, sent)], Limits::default()).unwrap_err();
        assert_eq!(error.finding().code, codes::registry::MALFORMED, "{error}");
    }
    let error = unpack_all(&[(tar, b"<html>".to_vec())], Limits::default()).unwrap_err();
    assert_eq!(error.finding().code, codes::registry::MALFORMED, "{error}");
}

#[test]
fn stops_at_each_limit_of_unpacking() {
    let over = |entries: &[Vec<u8>]| {
        let tar = archive(entries);
        let sent = gzip(&tar);
        let error = unpack_all(&[(tar, sent)], small()).unwrap_err();
        assert_eq!(error.finding().code, codes::registry::TOO_LARGE, "{error}");
        error.to_string()
    };
    assert!(over(&[file("big", &[0; 1001])]).contains("`big`"));
    let many: Vec<_> = (0..6).map(|i| file(&i.to_string(), b"")).collect();
    assert!(over(&many).contains("entries"));
    let bulky: Vec<_> = (0..5).map(|i| file(&i.to_string(), &[0; 1000])).collect();
    let tar = archive(&bulky);
    let sent = gzip(&tar);
    let limits = Limits {
        total: 4000,
        ..small()
    };
    let error = unpack_all(&[(tar, sent)], limits).unwrap_err();
    assert!(error.to_string().contains("3.9 KiB"), "{error}");
    let layers = vec![(archive(&[]), gzip(&archive(&[]))); 3];
    let error = unpack_all(&layers, small()).unwrap_err();
    assert!(error.to_string().contains("3 layers"), "{error}");
}

#[test]
fn stops_a_decompression_bomb_at_the_ratio_limit() {
    let tar = archive(&[file("bomb", &vec![0; 100 << 20])]);
    let sent = gzip(&tar);
    let limits = Limits {
        file: 1 << 30,
        total: 1 << 30,
        ..Limits::default()
    };
    let error = unpack_all(&[(tar, sent)], limits).unwrap_err();
    assert!(error.to_string().contains("200 times"), "{error}");
}

#[test]
fn gzip_members_need_an_average_size() {
    let tar = archive(&[file("a", &vec![b'x'; 1 << 20])]);
    let with_members_of = |size: usize| {
        let sent = tar.chunks(size).flat_map(gzip).collect();
        unpack_all(&[(tar.clone(), sent)], Limits::default())
    };
    assert_eq!(with_members_of(512).unwrap()["a"].len(), 1 << 20);
    let error = with_members_of(128).unwrap_err();
    assert_eq!(error.finding().code, codes::registry::TOO_LARGE, "{error}");
    let expected = "the limit of one gzip member for each 512 bytes";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn truncated_changed_or_longer_layer_is_a_digest_mismatch() {
    let tar = archive(&[entry(b"evil", EntryType::Symlink, 0o777, b"")]);
    let sent = gzip(&tar);
    let config = serde_json::json!({ "rootfs": { "diff_ids": [Digest::of(&tar)] } }).to_string();
    let layers = [Descriptor::of(media::LAYER_GZIP, &sent)];
    let config_descriptor = Descriptor::of(media::CONFIG, config.as_bytes());
    let arrivals = [
        (sent[..sent.len() - 1].to_vec(), " of "),
        ([sent.as_slice(), b"x"].concat(), "more than"),
        (vec![7; sent.len()], "received"),
    ];
    for (arrived, why) in arrivals {
        let mut unpacking = Unpacker::new(
            &config_descriptor,
            config.as_bytes(),
            &layers,
            Limits::default(),
        )
        .unwrap();
        let error = unpacking.layer(0, arrived.as_slice()).unwrap_err();
        assert_eq!(error.finding().code, codes::registry::DIGEST_MISMATCH);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn rejects_a_layer_with_another_uncompressed_digest() {
    let tar = archive(&[file("a", b"1")]);
    let sent = gzip(&tar);
    let error = unpack_all(&[(b"another".to_vec(), sent)], Limits::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("unpacked, does not match its digest"),
        "{error}"
    );
}

#[test]
fn upper_layers_replace_and_remove_files() {
    let lower = archive(&[
        file("keep", b"1"),
        file("gone", b"1"),
        file("folder/a", b"1"),
        file("opaque/a", b"1"),
        file("changed", b"1"),
    ]);
    let upper = archive(&[
        file(".wh.gone", b""),
        file(".wh.folder", b""),
        file("opaque/.wh..wh..opq", b""),
        file("opaque/b", b"2"),
        file("changed", b"2"),
    ]);
    let layers = [lower, upper].map(|tar| {
        let sent = gzip(&tar);
        (tar, sent)
    });
    let files = unpack_all(&layers, Limits::default()).unwrap();
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["changed", "keep", "opaque/b"]);
    assert_eq!(files["changed"], b"2");
}

#[test]
fn error_names_unsupported_layers_and_configurations() {
    let config = br#"{"rootfs":{"diff_ids":["sha256:0000000000000000000000000000000000000000000000000000000000000000"]}}"#;
    let good = Descriptor::of(media::CONFIG, config);
    let zstd = Descriptor::of("application/vnd.oci.image.layer.v1.tar+zstd", b"");
    let error = Unpacker::new(&good, config, &[zstd], Limits::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("tar+zstd"), "{error}");
    let helm = Descriptor::of("application/vnd.cncf.helm.config.v1+json", config);
    let error = Unpacker::new(&helm, config, &[], Limits::default())
        .err()
        .unwrap();
    assert_eq!(error.finding().code, codes::registry::WRONG_MEDIA_TYPE);
    let error = Unpacker::new(&good, config, &[], Limits::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("has 1 layers"), "{error}");
    let other = br#"{"rootfs":{"type":"volumes","diff_ids":[]}}"#;
    let error = Unpacker::new(&good, other, &[], Limits::default())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "the image configuration cannot be read: its `rootfs.type` is not `layers`"
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
    #[test]
    fn random_damage_gives_an_error_or_safe_paths(
        changes in proptest::collection::vec((0_usize..4608, proptest::num::u8::ANY), 1..6)
    ) {
        let mut tar = archive(&[
            entry(b"manifests/", EntryType::Directory, 0o755, b""),
            file("manifests/a.yaml", &[b'x'; 600]),
            file("manifests/b.yaml", b"y"),
        ]);
        for (at, byte) in changes {
            let at = at % tar.len();
            tar[at] = byte;
        }
        let sent = gzip(&tar);
        if let Ok(files) = unpack_all(&[(tar, sent)], small()) {
            for path in files.keys() {
                proptest::prop_assert!(check_path(path).is_ok(), "{}", path);
            }
        }
    }
}
