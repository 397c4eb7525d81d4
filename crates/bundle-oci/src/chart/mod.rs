//! Reads packed charts (`.tgz` from `helm package`) with the checks and limits of an image layer.
//! Writes the files of a chart for helm.

mod command_files;

use std::io::Read;
use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::reference::Digest;

use crate::limits::{Limits, format_size};
use crate::transfer::archive_file::gzip_descriptor;
use crate::unpack::{InMemory, UnpackError, UnpackedArchive, Unpacker};

pub use command_files::{CommandFiles, write, write_until};

/// Returns the files of the archive at `path`.
pub fn read(path: &Path, limits: &Limits) -> Result<Files, Finding> {
    let place = path.display().to_string();
    let mut packed = Vec::new();
    fs_err::File::open(path)
        .and_then(|file| file.take(limits.layer + 1).read_to_end(&mut packed))
        .map_err(|error| unreadable(&place, &error.kind().to_string()))?;
    unpack(&place, &packed, limits).map(|unpacked| unpacked.files)
}

/// Returns the content of the archive in `packed`. `place` is the path of the archive in findings.
fn unpack(
    place: &str,
    packed: &[u8],
    limits: &Limits,
) -> Result<UnpackedArchive<InMemory>, Finding> {
    if packed.len() as u64 > limits.layer {
        let limit = format_size(limits.layer);
        return Err(unreadable(place, &format!("it is larger than {limit}")));
    }
    let archive = gzip_descriptor(Digest::of(packed), packed.len() as u64);
    let unpacked = Unpacker::archive(InMemory::default(), &archive, *limits, packed);
    unpacked.map_err(|error| match error {
        UnpackError::Malformed { why, .. } => unreadable(place, &why),
        other => other.finding().in_file(place),
    })
}

fn unreadable(place: &str, why: &str) -> Finding {
    Finding::error(
        codes::usage::FILE_UNREADABLE,
        format!("the file is not a packed chart: {why}"),
    )
    .in_file(place)
    .hint("pass a folder, or a chart packed by `helm package`")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    pub(super) fn packed(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in entries {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.as_ustar_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&builder.into_inner().unwrap()).unwrap();
        gzip.finish().unwrap()
    }

    fn said(bytes: &[u8], limits: &Limits) -> Result<Files, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.tgz");
        fs_err::write(&path, bytes).unwrap();
        read(&path, limits).map_err(|finding| finding.message)
    }

    #[test]
    fn reads_packed_charts_and_rejects_paths_outside_the_folder() {
        let limits = Limits::default();
        let good = packed(&[("web/Chart.yaml", b"name: web"), ("web/values.yaml", b"")]);
        let files = said(&good, &limits).unwrap();
        assert_eq!(files["web/Chart.yaml"], b"name: web");
        let bad = packed(&[("../Chart.yaml", b"name: web")]);
        assert!(said(&bad, &limits).unwrap_err().contains("../Chart.yaml"));
        assert!(
            said(b"no gzip", &limits)
                .unwrap_err()
                .contains("is not a packed chart")
        );
        let bomb = packed(&[
            ("web/a", &vec![b' '; 7 << 20]),
            ("web/b", &vec![b' '; 7 << 20]),
        ]);
        let narrow = Limits {
            ratio: 50,
            ..limits
        };
        let found = said(&bomb, &narrow).unwrap_err();
        assert!(found.contains("50 times the compressed size"), "{found}");
        let small = Limits {
            total: 1024,
            ..limits
        };
        assert!(
            said(&good, &small)
                .unwrap_err()
                .contains("the archive, unpacked, is larger than the limit of 1 KiB")
        );
    }
}
