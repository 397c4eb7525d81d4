//! What refers to a digest: signatures are read from and written to the referrers API, or the list that stands in for it under a tag.
//! Not here: whether a signature is any good (bundle_trust), and cosign's older `.sig` tags (legacy).

use std::collections::HashSet;

use bundle_core::policy::RawSignature;
use bundle_core::reference::{Digest, PinnedReference};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Method;
use reqwest::header::LINK;
use url::Url;

use super::budget::{Budget, Slot, share};
use super::challenge::next_page;
use super::contended::{TRIES, settle};
use super::read::media_type;
use super::transport::{Ask, Target};
use super::{Client, Reason, RegistryError, Repository};
use crate::blob::Blob;
use crate::limits::{
    MANIFEST_BYTES, REFERRER_BYTES, REFERRER_PAGES, REFERRERS, SIGNATURE_BYTES, SIGNATURES_BYTES,
};
use crate::manifest::{Descriptor, Document, Index, Manifest, RawManifest, write};
use crate::media;

/// Requests under way at once while referrers or layers are read.
pub(super) const AT_ONCE: usize = 8;
/// Most entries that are listed: those beyond what is read are only counted.
const LISTED: usize = 10_000;

/// How cosign says what its bundles hold.
const CONTENT: (&str, &str) = ("dev.sigstore.bundle.content", "dsse-envelope");
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";
/// The predicate that means "I sign this".
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// Referrers as they are listed.
#[derive(Debug)]
struct Listed {
    entries: Vec<Descriptor>,
    /// Whether the list came to an end before we stopped asking for more of it.
    ended: bool,
}

impl Default for Listed {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            ended: true,
        }
    }
}

/// What a referrer holds.
#[derive(Debug)]
enum Held {
    /// Layers that say they are signatures.
    Layers(Vec<Descriptor>),
    /// It has so many bytes that it was not read.
    TooLarge(u64),
}

/// Where a signature was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureStored {
    /// The manifest that holds it.
    pub digest: Digest,
    /// The tag that lists it, where the registry has no referrers API.
    pub tag: Option<String>,
}

impl Client {
    /// Every signature beside the content, referrers before cosign's older tag, not looked at. An empty list means that the registry was asked,
    /// answered, and has none; everything else is an error. At most [`REFERRERS`] are read, of all places together, in which each place has its
    /// share: what is beyond is in the list without its bytes.
    pub async fn signatures(
        &self,
        pinned: &PinnedReference,
    ) -> Result<Vec<RawSignature>, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        self.run(
            "read the signatures of",
            pinned,
            self.deadlines.call,
            Box::pin(async move {
                let subject = pinned.digest();
                let (listed, [signatures, attestations]) = futures::try_join!(
                    self.listed(repository, subject, LISTED),
                    self.legacy_places(repository, subject),
                )?;
                let mut budget = Budget::new();
                // A list without an end: what there is beyond what was listed is not known, but that there is more.
                budget.beyond(usize::from(!listed.ended));
                let mut listed = listed.entries;
                // Since not all may be read. Sorting keeps the order of equals.
                listed.sort_by_key(rank);
                budget.beyond(listed.len().saturating_sub(REFERRERS));
                let mut slots: Vec<Slot> = Vec::new();
                let mut manifests = std::pin::pin!(
                    stream::iter(listed.into_iter().take(REFERRERS))
                        .map(|entry| self.referrer(repository, subject, entry))
                        .buffered(AT_ONCE)
                );
                // In order, as they come: what is too much of one manifest is forgotten before the next is looked at.
                while let Some(held) = manifests.try_next().await? {
                    match held {
                        Held::Layers(layers) => {
                            slots.extend(layers.into_iter().filter_map(|layer| budget.take(layer)));
                        }
                        Held::TooLarge(bytes) => {
                            slots.extend(budget.too_large(bytes, REFERRER_BYTES));
                        }
                    }
                }
                let (slots, rest) = share([budget.place(slots), signatures, attestations]);
                let mut found = self.layers(repository, slots).await?;
                found.extend(rest.rest());
                Ok(found)
            }),
        )
        .await
    }

    /// Puts a Sigstore bundle beside the content. Putting the same one twice changes nothing.
    pub async fn push_signature(
        &self,
        pinned: &PinnedReference,
        bundle: Vec<u8>,
    ) -> Result<SignatureStored, RegistryError> {
        self.push_attestation(pinned, SIGNED, bundle).await
    }

    /// The same with a bundle that says something else than "I sign this": its predicate type is told in the manifest that carries it.
    pub async fn push_attestation(
        &self,
        pinned: &PinnedReference,
        predicate_type: &str,
        bundle: Vec<u8>,
    ) -> Result<SignatureStored, RegistryError> {
        let repository = &Repository::from(pinned.reference());
        let origin = self.origin();
        self.run("sign", pinned, self.deadlines.call, async {
            if bundle.len() as u64 > SIGNATURE_BYTES {
                return Err(Reason::TooLarge {
                    what: "the signature".to_owned(),
                    limit: SIGNATURE_BYTES,
                });
            }
            let subject = origin
                .get_raw(repository, pinned.digest().as_str())
                .await?
                .descriptor();
            let layer = Blob::new(media::SIGSTORE_BUNDLE, bundle);
            let config = Blob::new(media::EMPTY, "{}");
            origin.put_blob(repository, &layer, None).await?;
            origin.put_blob(repository, &config, None).await?;
            let manifest =
                RawManifest::from(&referrer_of(subject, predicate_type, &config, &layer));
            let stored = origin
                .put_manifest(repository, manifest.digest.as_str(), &manifest)
                .await?;
            Ok(SignatureStored {
                digest: stored.digest,
                tag: stored.list,
            })
        })
        .await
    }

    /// What the referrers API and the list under the tag name together; an error if they are more than [`REFERRERS`].
    pub(super) async fn referrers_of(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Vec<Descriptor>, Reason> {
        let listed = self.listed(repository, subject, REFERRERS).await?;
        if !listed.ended || listed.entries.len() > REFERRERS {
            return Err(Reason::TooMany {
                what: format!("referrers of {subject}"),
                limit: REFERRERS,
            });
        }
        Ok(listed.entries)
    }

    /// What the referrers API and the list under the tag name together: an API may have come after the list was written, or know only what was
    /// written since. Beyond `most`, no further page is asked for.
    async fn listed(
        &self,
        repository: &Repository,
        subject: &Digest,
        most: usize,
    ) -> Result<Listed, Reason> {
        let (api, list) = futures::try_join!(
            self.list(repository, subject, most),
            self.tagged_list(repository, subject),
        )?;
        let mut listed = api.unwrap_or_default();
        let tagged = list.iter().flat_map(Index::descriptors);
        listed.entries = by_turns(listed.entries, tagged);
        Ok(listed)
    }

    /// The referrers API; `None` where there is none. The distribution specification has registries without one answer 404; real ones answer as
    /// [`is_absent`] and [`is_page`] say.
    async fn list(
        &self,
        repository: &Repository,
        subject: &Digest,
        most: usize,
    ) -> Result<Option<Listed>, Reason> {
        let mut listed = Listed::default();
        let mut room = SIGNATURES_BYTES;
        let mut target = Target::Path(format!("referrers/{subject}"));
        for page in 0..REFERRER_PAGES {
            let ask = Ask {
                target: target.clone(),
                ..Ask::get(repository, String::new()).accepting(media::INDEX)
            };
            let response = match self.send(&ask).await {
                Ok(response) => response,
                Err(reason) if page == 0 && is_absent(&reason) => return Ok(None),
                Err(reason) => return Err(reason),
            };
            if page == 0 && is_page(&response) {
                return Ok(None);
            }
            let next = next_url(&response)?;
            expect_list(&response)?;
            let index = read_list(&self.list_body(response).await?)?;
            let from = listed.entries.len();
            listed.entries.extend(index.descriptors());
            room = room.saturating_sub(listed.entries[from..].iter().map(Descriptor::weight).sum());
            match next {
                None => return Ok(Some(listed)),
                Some(_) if listed.entries.len() > most => return Ok(Some(listed)),
                Some(_) if room == 0 => break,
                Some(next) => target = Target::Url(next),
            }
        }
        listed.ended = false;
        Ok(Some(listed))
    }

    /// The list under the tag `sha256-…`; `None` where there is none.
    async fn tagged_list(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Option<Index>, Reason> {
        let ask = Ask::get(repository, format!("manifests/{}", list_tag(subject)))
            .accepting(media::INDEX);
        let response = match self.send(&ask).await {
            Ok(response) => response,
            Err(Reason::NotFound) => return Ok(None),
            Err(reason) => return Err(reason),
        };
        let expected = expect_list(&response);
        let is_manifest = media::is_manifest(&media_type(&response));
        if !is_manifest {
            expected.clone()?;
        }
        let body = self.list_body(response).await?;
        // GitLab reads the tag as the digest that it is made of. The content's own images are no referrers of it.
        if Digest::of(&body) == *subject {
            return Ok(None);
        }
        expected?;
        read_list(&body).map(Some)
    }

    async fn list_body(&self, response: reqwest::Response) -> Result<Bytes, Reason> {
        self.pools
            .body(
                response,
                MANIFEST_BYTES,
                "the list of referrers",
                &*self.memory,
            )
            .await
    }

    /// The layers of one referrer that say they are signatures. What the list says it is for is not asked: cosign 3 writes something else there.
    async fn referrer(
        &self,
        repository: &Repository,
        subject: &Digest,
        entry: Descriptor,
    ) -> Result<Held, Reason> {
        if media::is_index(&entry.media_type) {
            return Ok(Held::Layers(Vec::new()));
        }
        let asked = self
            .get_manifest_within(repository, &entry.digest, REFERRER_BYTES)
            .await;
        let manifest = match asked {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return Ok(Held::TooLarge(entry.size.max(REFERRER_BYTES + 1))),
            // Deleted, and the list has not heard of it.
            Err(Reason::NotFound) => return Ok(Held::Layers(Vec::new())),
            Err(reason) => return Err(reason),
        };
        let about_us = manifest
            .subject
            .as_ref()
            .is_some_and(|named| named.digest == *subject);
        if !about_us {
            return Ok(Held::Layers(Vec::new()));
        }
        let mut layers = manifest.layers;
        layers.retain(|layer| {
            // cosign 2 puts its older form here where it is told to.
            layer.media_type.starts_with(media::SIGSTORE_BUNDLE_PREFIX)
                || layer.media_type == media::SIMPLE_SIGNING
                || layer.media_type == media::DSSE_ENVELOPE
        });
        Ok(Held::Layers(layers))
    }

    /// Adds an entry to the list under the tag.
    pub(super) async fn add_to_list(
        &self,
        repository: &Repository,
        subject: &Digest,
        referrer: &Descriptor,
    ) -> Result<String, Reason> {
        let tag = list_tag(subject);
        let entry =
            serde_json::to_value(referrer).map_err(|error| Reason::Malformed(error.to_string()))?;
        for attempt in 0..=TRIES {
            let mut index = self
                .tagged_list(repository, subject)
                .await?
                .unwrap_or_else(Index::empty);
            if index.names(&referrer.digest) {
                return Ok(tag);
            }
            if attempt == TRIES {
                break;
            }
            index.manifests.push(entry.clone());
            let ask = Ask {
                method: Method::PUT,
                content: Some((media::INDEX, Bytes::from(write(&index)))),
                ..Ask::get(repository, format!("manifests/{tag}")).writing()
            };
            self.send(&ask).await?;
            settle(&referrer.digest, attempt).await;
        }
        Err(Reason::SignatureLost { tag })
    }
}

/// Whether this is what a registry without the referrers API answers to it. Some do not know the path (404, 501), some take its last part for
/// something else (400, 405), and some have nothing of the type that is accepted (406). Everything else is not known: 401 and 403 hide what may be
/// there, and after 429, 5xx or silence it may be there the next time.
fn is_absent(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NotFound
            | Reason::Refused {
                status: 400 | 405 | 406,
                ..
            }
            | Reason::Busy { status: 501, .. }
    )
}

/// Whether it is a web page: some registries show one at every path that they do not know. A proxy that wants a login shows it in the place of the
/// fallback tag as well, where it is an error.
fn is_page(response: &reqwest::Response) -> bool {
    media_type(response) == "text/html"
}

fn expect_list(response: &reqwest::Response) -> Result<(), Reason> {
    let found = media_type(response);
    if media::is_index(&found) || found == "application/json" {
        return Ok(());
    }
    Err(Reason::WrongMediaType {
        found,
        wanted: "a list of referrers",
    })
}

fn read_list(body: &[u8]) -> Result<Index, Reason> {
    serde_json::from_slice(body).map_err(|error| {
        Reason::Malformed(format!("the list of referrers is not an index: {error}"))
    })
}

/// One of the API, one of the list under the tag, so that neither crowds the other out. What both name is as the API says: somebody writes that list.
fn by_turns(
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

/// What is read first. cosign 3 calls signatures and attestations the same, and tells them apart by an annotation, which registries list with them.
/// Lists that others write under a tag may have it not (cosign's before go-containerregistry 0.22): whatever is in those may be a signature.
/// Nobody is believed here: what says something else than it is comes earlier or later, and is judged all the same.
fn rank(entry: &Descriptor) -> u8 {
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

/// The tag under which referrers are listed where there is no API for it.
fn list_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

fn referrer_of(subject: Descriptor, predicate_type: &str, config: &Blob, layer: &Blob) -> Manifest {
    let mut document = Document::new(config.descriptor.clone(), vec![layer.descriptor.clone()]);
    document.artifact_type = Some(media::SIGSTORE_BUNDLE.to_owned());
    document.subject = Some(subject);
    document.annotations = [CONTENT, (PREDICATE, predicate_type)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    Manifest::written(&document)
}

/// The next page, which has to be of the same registry.
pub(super) fn next_url(response: &reqwest::Response) -> Result<Option<Url>, Reason> {
    let Some(target) = response
        .headers()
        .get(LINK)
        .and_then(|value| value.to_str().ok())
        .and_then(next_page)
    else {
        return Ok(None);
    };
    let next = response
        .url()
        .join(target)
        .map_err(|_| Reason::Malformed("the next page of a list has no address".to_owned()))?;
    if next.origin() == response.url().origin() {
        Ok(Some(next))
    } else {
        Err(Reason::Redirect {
            to: super::http::authority(&next),
            why: "for a page of its own list",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lists_take_turns() {
        let named = |text: &str| Descriptor::of(media::MANIFEST, text.as_bytes());
        let mut otherwise = named("c");
        otherwise.media_type = media::INDEX.to_owned();
        let three = ["a", "b", "c"].map(named);
        let turns = by_turns(three.to_vec(), [otherwise, named("x"), named("y")]);
        assert_eq!(turns, ["a", "x", "b", "y", "c"].map(named));
        let turns = by_turns(Vec::new(), three.clone());
        assert_eq!(turns, three);
    }
}
