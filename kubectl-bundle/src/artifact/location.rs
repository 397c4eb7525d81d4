//! Source or target of an artifact: a reference in a registry, a layout, an archive, or a folder of
//! manifests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use bundle_oci::registry::Client;
use bundle_oci::store::{DiskLayout, ImageSelector, LocatedImage};
use bundle_oci::{archive, layout};

use crate::failure::Outcome;

/// Location of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArtifactLocation {
    /// A reference in a registry.
    Registry(Reference),
    /// An OCI layout in a folder, and the selected image in it.
    Layout(PathBuf, ImageSelector),
    /// An OCI layout in a tar archive, and the selected image in it.
    Archive(PathBuf, ImageSelector),
    /// A folder of manifests.
    Folder(PathBuf),
}

/// Prefix of the path of a layout, as in skopeo.
const LAYOUT: &str = "oci:";
/// Prefix of the path of an archive, as in skopeo.
const ARCHIVE: &str = "oci-archive:";
/// Prefix of a reference, as in skopeo.
const REGISTRY: &str = "docker://";

impl ArtifactLocation {
    /// Parses a source. If the text is an existing path, it is used as a path, otherwise as a
    /// reference. `:NAME` or `@DIGEST` after the path selects one image.
    pub(crate) fn source(text: &str) -> Outcome<Self> {
        if let Some(reference) = text.strip_prefix(REGISTRY) {
            return Ok(Self::Registry(reference.parse()?));
        }
        let bare = text
            .strip_prefix(LAYOUT)
            .or_else(|| text.strip_prefix(ARCHIVE))
            .unwrap_or(text);
        if let Some((path, pick)) = split_path_and_image(bare) {
            return Self::from_existing_path(path, pick);
        }
        if bare.len() < text.len() || looks_like_a_path(bare) {
            return Err(Finding::error(codes::usage::FILE_UNREADABLE, "no such file or folder")
                .in_file(bare)
                .hint("pass a folder that contains bundle.yaml and manifests/, an OCI layout or archive, or a reference, REGISTRY/REPOSITORY:TAG")
                .into());
        }
        text.parse()
            .map(Self::Registry)
            .map_err(|finding: Finding| {
                let finding = if bare.contains([':', '@']) {
                    finding
                } else {
                    // A text without tag and digest is most likely a path.
                    Finding {
                        message: format!("{}, and no such file or folder exists", finding.message),
                        ..finding
                    }
                };
                finding.into()
            })
    }

    /// Parses a target. A text that is an existing path is a target on disk. Other texts are
    /// targets on disk if they have the form of a path (`./…`, `/…`, `….oci`, `….tar`) or the
    /// prefix `oci:` or `oci-archive:`.
    pub(crate) fn target(text: &str) -> Outcome<Self> {
        if let Some(reference) = text.strip_prefix(REGISTRY) {
            return Ok(Self::Registry(reference.parse()?));
        }
        if let Some(rest) = text.strip_prefix(LAYOUT) {
            let (path, pick) = split_path_and_image(rest).unwrap_or_else(|| split(rest));
            return Ok(Self::Layout(path, pick));
        }
        if let Some(rest) = text.strip_prefix(ARCHIVE) {
            let (path, pick) = split_path_and_image(rest).unwrap_or_else(|| split(rest));
            return Ok(Self::Archive(path, pick));
        }
        let (path, pick) = match split_path_and_image(text) {
            Some(found) => found,
            None if looks_like_a_path(text) => split(text),
            None => {
                return match text.parse() {
                    Ok(reference) => Ok(Self::Registry(reference)),
                    // A text without a registry can only be a path.
                    Err(finding) if text.contains([':', '@']) => Err(finding.into()),
                    Err(_) => Ok(Self::on_path(text.into(), ImageSelector::Only)),
                };
            }
        };
        Ok(Self::on_path(path, pick))
    }

    fn on_path(path: PathBuf, pick: ImageSelector) -> Self {
        let tar = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("tar"));
        if path.is_dir() || !tar && !path.is_file() {
            Self::Layout(path, pick)
        } else {
            Self::Archive(path, pick)
        }
    }

    /// Returns the location for an existing path.
    fn from_existing_path(path: PathBuf, pick: ImageSelector) -> Outcome<Self> {
        if layout::is_layout(&path) {
            return Ok(Self::Layout(path, pick));
        }
        if path.is_dir() && pick == ImageSelector::Only {
            return Ok(Self::Folder(path));
        }
        if path.is_file() && archive::is_archive(&path) {
            return Ok(Self::Archive(path, pick));
        }
        let what = if path.is_dir() {
            "it is not an OCI layout, so it has no images to select"
        } else {
            "it is neither a folder nor an OCI archive"
        };
        Err(Finding::error(codes::usage::FILE_UNREADABLE, what)
            .in_file(path.display().to_string())
            .hint("pass a folder that contains bundle.yaml and manifests/, an OCI layout or archive, or a reference, REGISTRY/REPOSITORY:TAG")
            .into())
    }

    /// Returns the image at this location. Returns `None` for a folder of manifests, which must be
    /// built first. For a location in a registry, the manifest is downloaded.
    pub(crate) async fn open(&self, client: &Client) -> Outcome<Option<LocatedImage>> {
        match self {
            Self::Registry(reference) => {
                Ok(Some(LocatedImage::reference(client, reference).await?))
            }
            Self::Layout(path, pick) | Self::Archive(path, pick) => {
                let disk = Arc::new(DiskLayout::open(path)?);
                Ok(Some(LocatedImage::disk(disk, pick)?))
            }
            Self::Folder(_) => Ok(None),
        }
    }

    /// Returns the name of the image in a layout or archive, if the location contains a name.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Layout(_, ImageSelector::Name(name))
            | Self::Archive(_, ImageSelector::Name(name)) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for ArtifactLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(f),
            Self::Layout(path, pick) | Self::Archive(path, pick) => {
                path.display().fmt(f)?;
                match pick {
                    ImageSelector::Only => Ok(()),
                    ImageSelector::Name(name) => write!(f, ":{name}"),
                    ImageSelector::Digest(digest) => write!(f, "@{digest}"),
                }
            }
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

/// Returns the existing path at the beginning of the text, and the selected image. If several
/// prefixes of the text are existing paths, the longest path is used.
fn split_path_and_image(text: &str) -> Option<(PathBuf, ImageSelector)> {
    if Path::new(text).exists() {
        return Some((text.into(), ImageSelector::Only));
    }
    let ends = text
        .char_indices()
        .filter(|(_, c)| matches!(c, ':' | '@'))
        .map(|(at, _)| at);
    ends.rev()
        .filter_map(|at| Some((PathBuf::from(&text[..at]), parse_selector(&text[at..])?)))
        .find(|(path, _)| layout::is_layout(path) || archive::is_archive(path))
}

/// Parses `:NAME` or `@DIGEST`.
fn parse_selector(text: &str) -> Option<ImageSelector> {
    if let Some(digest) = text.strip_prefix('@') {
        return digest.parse().ok().map(ImageSelector::Digest);
    }
    let name = text.strip_prefix(':').filter(|name| !name.is_empty())?;
    Some(ImageSelector::Name(name.to_owned()))
}

/// Splits `PATH:NAME` or `PATH@DIGEST`. `PATH` need not exist.
fn split(text: &str) -> (PathBuf, ImageSelector) {
    // The colon of a drive letter (`C:\`) is part of the path.
    let from = if text
        .get(1..3)
        .is_some_and(|rest| rest == ":\\" || rest == ":/")
    {
        2
    } else {
        0
    };
    match text[from..].find(':') {
        Some(at) => {
            let (path, name) = text.split_at(from + at);
            match parse_selector(name) {
                Some(pick) => (path.into(), pick),
                None => (text.into(), ImageSelector::Only),
            }
        }
        None => (text.into(), ImageSelector::Only),
    }
}

fn looks_like_a_path(text: &str) -> bool {
    let path = split(text).0;
    let ends = |ending: &str| {
        path.extension()
            .is_some_and(|found| found.eq_ignore_ascii_case(ending))
    };
    text.starts_with(['.', '/', '\\'])
        || text.get(1..3).is_some_and(|rest| rest == ":\\")
        || ends("tar")
        || ends("oci")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_is_classified_by_its_form() {
        let layout = |path: &str, pick| ArtifactLocation::Layout(path.into(), pick);
        let archive = |path: &str, pick| ArtifactLocation::Archive(path.into(), pick);
        let name = |text: &str| ImageSelector::Name(text.to_owned());
        for (text, location) in [
            ("dist/web.oci", layout("dist/web.oci", ImageSelector::Only)),
            ("web", layout("web", ImageSelector::Only)),
            ("./web:1.4.0", layout("./web", name("1.4.0"))),
            ("web.tar", archive("web.tar", ImageSelector::Only)),
            (
                "dist.d/web.tar",
                archive("dist.d/web.tar", ImageSelector::Only),
            ),
            (
                "/tmp/all.tar:registry.example.com/web:1",
                archive("/tmp/all.tar", name("registry.example.com/web:1")),
            ),
            ("oci:web:1", layout("web", name("1"))),
            ("oci-archive:web", archive("web", ImageSelector::Only)),
            (
                "registry.example.com/web:1",
                ArtifactLocation::Registry("registry.example.com/web:1".parse().unwrap()),
            ),
            (
                "docker://localhost:5000/web:1",
                ArtifactLocation::Registry("localhost:5000/web:1".parse().unwrap()),
            ),
        ] {
            assert_eq!(ArtifactLocation::target(text).unwrap(), location, "{text}");
        }
        assert!(ArtifactLocation::target("web:1.4.0").is_err());
    }

    #[test]
    fn existing_path_is_a_path() {
        let root = tempfile::tempdir().unwrap();
        let web = root.path().join("web");
        fs_err::create_dir(&web).unwrap();
        let text = web.display().to_string();
        assert_eq!(
            ArtifactLocation::source(&text).unwrap(),
            ArtifactLocation::Folder(web.clone())
        );
        assert!(ArtifactLocation::source(&format!("{text}:1")).is_err());
        fs_err::write(web.join("oci-layout"), "{}").unwrap();
        let only = ArtifactLocation::Layout(web.clone(), ImageSelector::Only);
        assert_eq!(ArtifactLocation::source(&text).unwrap(), only);
        assert_eq!(ArtifactLocation::target(&text).unwrap(), only);
        let named = ArtifactLocation::Layout(
            web,
            ImageSelector::Name("registry.example.com/web:1".to_owned()),
        );
        let text = format!("{text}:registry.example.com/web:1");
        assert_eq!(ArtifactLocation::source(&text).unwrap(), named);
        assert_eq!(named.to_string(), text);
        assert!(ArtifactLocation::source("./nowhere.tar").is_err());
        assert!(ArtifactLocation::source("nowhere").is_err());
    }
}
