//! Lists of referrers: detects responses without a list, sorts the entries, and finds the next
//! page.

use std::collections::HashSet;

use bundle_core::json;
use bundle_core::reference::Digest;
use reqwest::header::LINK;

use crate::manifest::{Descriptor, RawIndex};
use crate::media;
use crate::registry::RegistryErrorReason;
use crate::registry::auth::challenge::next_page;
use crate::registry::manifests::read::media_type;
use crate::registry::transport::ReceivedUrl;

/// Annotation with the predicate type of a Sigstore bundle.
pub(super) const PREDICATE: &str = "dev.sigstore.bundle.predicateType";
/// Predicate type of a plain signature.
pub(super) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// List of referrers.
#[derive(Debug)]
pub(super) struct ReferrerList {
    pub(super) entries: Vec<Descriptor>,
    /// `true` if the whole list was read.
    pub(super) is_complete: bool,
}

impl Default for ReferrerList {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            is_complete: true,
        }
    }
}

/// Returns `true` for the responses of registries without the referrers API.
///
/// Such a registry does not know the path (404, 501), or has no content of the accepted type (406).
/// Some registries parse the last part of the path as a tag or digest (400, 405). After any other
/// response the referrers are unknown: for 401 and 403, the caller lacks the permission to read
/// them, and after 429, 5xx or a timeout, they may be available later.
pub(super) fn has_no_referrers_api(reason: &RegistryErrorReason) -> bool {
    matches!(
        reason,
        RegistryErrorReason::NotFound
            | RegistryErrorReason::Refused {
                status: 400 | 405 | 406,
                ..
            }
            | RegistryErrorReason::Busy { status: 501, .. }
    )
}

/// Returns `true` if the response is a web page. Some registries without the referrers API return a
/// web page for every unknown path. A proxy returns its login page for every request. This case is
/// detected later: the proxy also returns its login page for the fallback tag, where a web page is
/// an error.
pub(super) fn is_web_page(response: &reqwest::Response) -> bool {
    media_type(response) == "text/html"
}

pub(super) fn expect_list(response: &reqwest::Response) -> Result<(), RegistryErrorReason> {
    let found = media_type(response);
    if media::is_index(&found) || found == "application/json" {
        return Ok(());
    }
    Err(RegistryErrorReason::WrongMediaType {
        found,
        wanted: "a list of referrers",
    })
}

pub(super) fn read_list(body: &[u8]) -> Result<RawIndex, RegistryErrorReason> {
    json::read(body).map_err(|error| {
        RegistryErrorReason::Malformed(format!("the list of referrers is not an index: {error}"))
    })
}

/// Interleaves the entries of the referrers API with the entries of the fallback list, so that many
/// entries in one list do not displace the entries of the other list. If both lists have an entry
/// for a digest, the entry of the API is used, because every user with write access can change the
/// fallback list.
pub(super) fn interleave(
    mut api: Vec<Descriptor>,
    tagged: impl IntoIterator<Item = Descriptor>,
) -> Vec<Descriptor> {
    let mut known: HashSet<Digest> = HashSet::new();
    api.retain(|entry| known.insert(entry.digest.clone()));
    let new = |entry: &Descriptor| known.insert(entry.digest.clone());
    let mut others = tagged.into_iter().filter(new);
    let mut all = Vec::new();
    for entry in api {
        all.push(entry);
        all.extend(others.next());
    }
    all.extend(others);
    all
}

/// Returns the reading order of an entry: entries with lower values are read first.
///
/// cosign 3 uses one artifact type for signatures and attestations, and distinguishes them by an
/// annotation. Registries include this annotation in lists. A fallback list from another client may
/// lack the annotation (cosign before go-containerregistry 0.22), so an entry without the
/// annotation may be a signature. The annotation is not trusted: it changes only the order, and
/// every entry is verified.
pub(super) fn read_priority(entry: &Descriptor) -> u8 {
    let named = entry.artifact_type.as_deref().unwrap_or_default();
    let predicate = entry.annotations.get(PREDICATE).map(String::as_str);
    match predicate {
        Some(SIGNED) => 0,
        None if named == media::COSIGN_SIGNATURE => 0,
        None if named.starts_with(media::SIGSTORE_BUNDLE_PREFIX) => 1,
        None => 2,
        Some(_) => 3,
    }
}

/// Returns the fallback tag, under which the referrers are listed in registries without the
/// referrers API.
pub(super) fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

/// Returns the URL of the next page, which must be on the same registry.
pub(in crate::registry) fn next_url(
    response: &reqwest::Response,
) -> Result<Option<ReceivedUrl>, RegistryErrorReason> {
    let Some(target) = response
        .headers()
        .get(LINK)
        .and_then(|value| value.to_str().ok())
        .and_then(next_page)
    else {
        return Ok(None);
    };
    let next = response.url().join(target).map_err(|_| {
        RegistryErrorReason::Malformed("the next page of a list has an invalid URL".to_owned())
    })?;
    if next.origin() == response.url().origin() {
        Ok(Some(ReceivedUrl::new(next, response)))
    } else {
        Err(RegistryErrorReason::Redirect {
            to: crate::registry::http::pools::authority(&next),
            why: "the next page of a list is on another host",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_lists_that_need_far_more_memory_than_text() {
        let list = |entry: &str, count: usize| {
            let entries = vec![entry; count].join(",");
            format!(r#"{{"schemaVersion":2,"manifests":[{entries}]}}"#)
        };
        let named = serde_json::to_string(&Descriptor::of(media::MANIFEST, b"a")).unwrap();
        let found = read_list(list(&named, 5_000).as_bytes()).unwrap();
        assert_eq!(found.descriptors().count(), 5_000);
        for entry in [r#"{"":0}"#, r#"{"":{"":{"":0}}}"#] {
            let error = read_list(list(entry, 100_000).as_bytes()).unwrap_err();
            assert!(error.to_string().contains("when parsed"), "{error}");
        }
    }

    #[test]
    fn entries_of_both_lists_are_interleaved() {
        let named = |text: &str| Descriptor::of(media::MANIFEST, text.as_bytes());
        let mut otherwise = named("c");
        otherwise.media_type = media::INDEX.to_owned();
        let three = ["a", "b", "c"].map(named);
        let turns = interleave(three.to_vec(), [otherwise, named("x"), named("y")]);
        assert_eq!(turns, ["a", "x", "b", "y", "c"].map(named));
        let turns = interleave(Vec::new(), three.clone());
        assert_eq!(turns, three);
    }
}
