//! Identity of content: type of the source, resolved source, and digest.

mod files;

use serde_json::json;

pub use files::FileIndex;

use crate::{
    json,
    names::KubeName,
    reference::{Digest, PinnedReference, Reference},
    review::{
        SealedContent, Source,
        source::{GitRef, PullCredentials},
    },
};

/// Content of one source. Equal values identify the same files, fetched from the same location with
/// the same credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentId {
    source: Source,
    digest: Digest,
}

/// An image as the source of content.
#[derive(Debug, Clone, Copy)]
pub struct ImageContent<'a> {
    reference: &'a Reference,
    digest: &'a Digest,
    /// Credentials for the registry.
    pub credentials: &'a PullCredentials,
}

impl ImageContent<'_> {
    /// Returns the reference, pinned to the digest of the content.
    pub fn pinned(&self) -> PinnedReference {
        self.reference.pin(self.digest.clone())
    }
}

impl ContentId {
    /// Returns the content of `source` with `digest`. For an image, `digest` is the digest of the
    /// manifest and replaces the digest in the reference.
    pub fn new(source: &Source, digest: Digest) -> Self {
        let source = match source {
            Source::Image {
                reference,
                credentials,
            } => Source::Image {
                reference: reference.pin(digest.clone()).reference().clone(),
                credentials: credentials.clone(),
            },
            other => other.clone(),
        };
        Self { source, digest }
    }

    /// Returns the content of `source` with the digest and commit that the seal of a Bundle
    /// records.
    pub fn sealed(source: &Source, sealed: &SealedContent) -> Self {
        let id = Self::new(source, sealed.digest.clone());
        match &sealed.commit {
            Some(commit) => id.at_commit(commit),
            None => id,
        }
    }

    /// Returns the same content, pinned to `commit` of its repository. Other kinds of sources have
    /// no commit.
    #[must_use]
    pub fn at_commit(mut self, commit: &str) -> Self {
        if let Source::Git { checkout, .. } = &mut self.source {
            *checkout = GitRef::Commit(commit.to_owned());
        }
        self
    }

    /// Returns the commit that the content of a git repository is pinned to; `None` for other
    /// content.
    pub fn commit(&self) -> Option<&str> {
        match &self.source {
            Source::Git {
                checkout: GitRef::Commit(commit),
                ..
            } => Some(commit),
            _ => None,
        }
    }

    /// Returns the resolved source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the digest of the content: of the OCI manifest for an image, and of the archive for
    /// http and upload. For all other sources, it is the digest of the files
    /// ([`FileIndex::digest`]).
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the image that the content comes from, or `None` for any other kind of source.
    pub fn image(&self) -> Option<ImageContent<'_>> {
        match &self.source {
            Source::Image {
                reference,
                credentials,
            } => Some(ImageContent {
                reference,
                digest: &self.digest,
                credentials,
            }),
            _ => None,
        }
    }

    /// Returns the scope: a digest of the location and the credentials with which the content is
    /// fetched. A cached copy is used only for the same scope. Therefore a digest alone gives a
    /// requester no access to content of another requester.
    pub fn scope(&self) -> Digest {
        let parts = match (&self.source, self.image()) {
            (_, Some(image)) => {
                let (kind, name) = match image.credentials {
                    PullCredentials::Secret(name) => ("secret", name),
                    PullCredentials::Class(name) => ("class", name),
                };
                json!(["image", image.pinned().to_string(), kind, name.as_str()])
            }
            (Source::ConfigMaps(parts), _) => {
                let parts = parts
                    .iter()
                    .map(|part| json!([part.name.as_str(), part.path]));
                json!(["configMaps", parts.collect::<Vec<_>>()])
            }
            (
                Source::Git {
                    repository,
                    directory,
                    auth,
                    ..
                },
                _,
            ) => {
                let secret = auth.secret.as_ref().map(KubeName::as_str);
                json!(["git", repository.as_str(), directory, self.commit(), secret])
            }
            (Source::Http { url, auth }, _) => {
                let secret = auth.secret.as_ref().map(KubeName::as_str);
                json!(["http", url, secret])
            }
            // Only a user who has the bytes can upload content. Therefore the digest of an upload
            // is sufficient as its scope.
            (other, _) => json!([other.kind(), self.digest.as_str()]),
        };
        json::digest(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::source::git::GitUrl;
    use crate::review::source::{Auth, ConfigMapFiles};

    fn secret(name: &str) -> PullCredentials {
        PullCredentials::Secret(name.parse().unwrap())
    }

    fn of_class(name: &str) -> PullCredentials {
        PullCredentials::Class(name.parse().unwrap())
    }

    fn image(reference: &str, credentials: PullCredentials) -> Source {
        Source::Image {
            reference: reference.parse().unwrap(),
            credentials,
        }
    }

    fn config_maps(parts: &[(&str, &str)]) -> Source {
        let parts = parts.iter().map(|(name, path)| ConfigMapFiles {
            name: name.parse().unwrap(),
            path: (*path).to_owned(),
        });
        Source::ConfigMaps(parts.collect())
    }

    fn http(url: &str, secret: Option<&str>) -> Source {
        Source::Http {
            url: url.to_owned(),
            auth: Auth {
                secret: secret.map(|name| name.parse().unwrap()),
                insecure_skip_verify: false,
            },
        }
    }

    #[test]
    fn image_content_is_pinned_to_its_digest_whatever_the_reference_names() {
        let digest = Digest::of(b"1");
        for reference in [
            "registry.example.com/web:1".to_owned(),
            format!("registry.example.com/web@{}", Digest::of(b"2")),
        ] {
            let id = ContentId::new(&image(&reference, secret("robot")), digest.clone());
            let found = id.image().unwrap();
            assert_eq!(found.pinned().digest(), &digest);
            assert_eq!(found.credentials, &secret("robot"));
            let Source::Image { reference, .. } = id.source() else {
                panic!("{id:?}");
            };
            assert_eq!(reference.digest(), Some(&digest));
        }
        assert!(
            ContentId::new(&config_maps(&[("a", "")]), digest)
                .image()
                .is_none()
        );
    }

    fn git(repository: &str, directory: &str, secret: Option<&str>) -> Source {
        Source::Git {
            repository: GitUrl::parse(repository).unwrap(),
            directory: directory.to_owned(),
            checkout: GitRef::Branch("main".to_owned()),
            auth: Auth {
                secret: secret.map(|name| name.parse().unwrap()),
                insecure_skip_verify: false,
            },
        }
    }

    #[test]
    fn sealed_content_of_a_repository_is_pinned_to_its_commit() {
        let commit = "a".repeat(40);
        let source = git("https://git.example.com/web", "manifests", None);
        let sealed = SealedContent {
            spec: Digest::of(b"spec"),
            digest: Digest::of(b"1"),
            version: None,
            commit: Some(commit.clone()),
        };
        let id = ContentId::sealed(&source, &sealed);
        assert_eq!(id.commit(), Some(commit.as_str()));
        assert!(id.source().is_fixed());
        assert_eq!(
            id,
            ContentId::new(&source, Digest::of(b"1")).at_commit(&commit)
        );
        assert_eq!(ContentId::new(&source, Digest::of(b"1")).commit(), None);
    }

    #[test]
    fn scopes_differ_by_place_credentials_and_kind() {
        let id = |source: &Source| ContentId::new(source, Digest::of(b"1")).scope();
        let pinned = |digit: &str| {
            let source = git("https://git.example.com/web", "a", None);
            let id = ContentId::new(&source, Digest::of(b"1"));
            id.at_commit(&digit.repeat(40)).scope()
        };
        let one = id(&image("registry.example.com/web:1", of_class("plain")));
        assert_eq!(
            one,
            id(&image("registry.example.com/web:2", of_class("plain")))
        );
        let all = [
            one,
            id(&image("registry.example.com/other:1", of_class("plain"))),
            id(&image("registry.example.com/web:1", secret("robot"))),
            id(&image("registry.example.com/web:1", secret("plain"))),
            id(&image("registry.example.com/web:1", of_class("robot"))),
            id(&config_maps(&[("a", "b")])),
            id(&config_maps(&[("a", "")])),
            id(&config_maps(&[("a", "b"), ("c", "d")])),
            id(&config_maps(&[("a", "b\",\"c"), ("d", "")])),
            id(&Source::Upload),
            id(&git("https://git.example.com/web", "a", None)),
            id(&git("https://git.example.com/web", "b", None)),
            id(&git("https://git.example.com/other", "a", None)),
            id(&git("https://git.example.com/web", "a", Some("robot"))),
            pinned("a"),
            pinned("b"),
            id(&http("https://files.example.com/a", None)),
            id(&http("https://files.example.com/b", None)),
            id(&http("https://files.example.com/a", Some("robot"))),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
