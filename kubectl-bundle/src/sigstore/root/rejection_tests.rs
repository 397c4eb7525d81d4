//! Tests for rejected refreshes. A rejected refresh can store a new root, but does not decrease the
//! stored versions of the other metadata. The tests generate the repository and sign its metadata
//! with a key for each role.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use sigstore_tuf::transport::FetchFuture;
use sigstore_tuf::{Repository, canonical_json};

use super::repository::TufRepository;
use super::store::{Folders, Instance};
use crate::failure::rendered;

const NOW: Timestamp = Timestamp::constant(1_900_000_000, 0);
const LATER: &str = "2090-01-01T00:00:00Z";
const PAST: &str = "2020-01-01T00:00:00Z";

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from_digit(u32::from(digit), 16).unwrap())
        .collect()
}

/// Returns the key with this name.
fn key(name: &str) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(digest(&SHA256, name.as_bytes()).as_ref()).unwrap()
}

fn signed(document: &Value, signer: &str) -> Vec<u8> {
    let bytes = canonical_json::to_canonical_bytes(document).unwrap();
    let signature = json!({ "keyid": signer, "sig": hex(key(signer).sign(&bytes).as_ref()) });
    json!({ "signed": document, "signatures": [signature] })
        .to_string()
        .into_bytes()
}

/// Valid metadata of a repository. Tests change its fields.
#[derive(Clone)]
struct State {
    root: u64,
    /// Keys of timestamp, snapshot and targets in the root.
    keys: [&'static str; 3],
    /// Keys that actually sign timestamp, snapshot and targets.
    signers: [&'static str; 3],
    versions: [u64; 3],
    timestamp_expires: &'static str,
}

impl State {
    fn at(version: u64, targets: u64) -> Self {
        let keys = ["timestamp", "snapshot", "targets"];
        Self {
            root: 1,
            keys,
            signers: keys,
            versions: [version, version, targets],
            timestamp_expires: LATER,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn root(&self) -> Vec<u8> {
        let mut keys = serde_json::Map::new();
        for name in ["root"].iter().chain(&self.keys) {
            let public = hex(key(name).public_key().as_ref());
            let named = json!({ "keytype": "ed25519", "scheme": "ed25519", "keyval": { "public": public } });
            keys.insert((*name).to_owned(), named);
        }
        let role = |key: &str| json!({ "keyids": [key], "threshold": 1 });
        let [timestamp, snapshot, targets] = self.keys;
        let document = json!({
            "_type": "root", "spec_version": "1.0.31", "version": self.root, "expires": LATER,
            "consistent_snapshot": false, "keys": keys,
            "roles": {
                "root": role("root"), "timestamp": role(timestamp),
                "snapshot": role(snapshot), "targets": role(targets),
            },
        });
        signed(&document, "root")
    }

    /// Returns the files of the repository.
    fn files(&self) -> Files {
        let [timestamp, snapshot, targets] = self.versions;
        let role = |kind: &str, version: u64, expires: &str, more: (&str, Value)| {
            let mut document = json!({ "_type": kind, "spec_version": "1.0.31", "version": version, "expires": expires });
            document[more.0] = more.1;
            document
        };
        let hash = hex(digest(&SHA256, b"{}").as_ref());
        let target = json!({ "trusted_root.json": { "length": 2, "hashes": { "sha256": hash } } });
        let documents = [
            role(
                "timestamp",
                timestamp,
                self.timestamp_expires,
                ("meta", json!({ "snapshot.json": { "version": snapshot } })),
            ),
            role(
                "snapshot",
                snapshot,
                LATER,
                ("meta", json!({ "targets.json": { "version": targets } })),
            ),
            role("targets", targets, LATER, ("targets", target)),
        ];
        let names = ["timestamp.json", "snapshot.json", "targets.json"];
        let mut files = BTreeMap::from([
            (format!("{}.root.json", self.root), self.root()),
            ("targets/trusted_root.json".to_owned(), b"{}".to_vec()),
        ]);
        for ((name, document), signer) in names.iter().zip(documents).zip(self.signers) {
            files.insert((*name).to_owned(), signed(&document, signer));
        }
        Files(files)
    }
}

struct Files(BTreeMap<String, Vec<u8>>);

impl Repository for Files {
    fn fetch_metadata<'a>(&'a self, name: &'a str, _: u64) -> FetchFuture<'a> {
        Box::pin(async move { Ok(self.0.get(name).cloned()) })
    }

    fn fetch_target<'a>(&'a self, path: &'a str, _: u64) -> FetchFuture<'a> {
        Box::pin(async move { Ok(self.0.get(&format!("targets/{path}")).cloned()) })
    }
}

/// A client that trusts the first root, with its stored metadata.
struct Client {
    folder: tempfile::TempDir,
    instance: Instance,
}

impl Client {
    /// Returns a client that has version 5 of all metadata.
    async fn at_five() -> Self {
        let first = State::at(5, 5);
        let client = Self {
            folder: tempfile::tempdir().unwrap(),
            instance: Instance {
                mirror: "https://tuf.example.com".to_owned(),
                root: String::from_utf8(first.root()).unwrap(),
            },
        };
        client.accepts(&first).await;
        client
    }

    fn source(&self) -> TufRepository<'_> {
        let folders = Folders {
            config: self.folder.path().join("config"),
            cache: self.folder.path().join("cache"),
        };
        TufRepository {
            metadata: folders.metadata_of(&self.instance),
            instance: &self.instance,
            now: NOW,
        }
    }

    #[track_caller]
    fn accepts(&self, state: &State) -> impl Future<Output = ()> {
        let files = state.files();
        async move {
            let asked = self.source().refresh(files).await;
            asked.unwrap_or_else(|failure| panic!("{failure:?}"));
        }
    }

    async fn rejects(&self, state: &State, why: &str) {
        let Err(failure) = self.source().refresh(state.files()).await else {
            panic!("not refused: {why}");
        };
        let message = format!("{failure:?}");
        assert!(message.contains(why), "{why}: {message}");
    }
}

#[tokio::test]
async fn messages_of_rejected_refreshes_are_recorded() {
    let client = Client::at_five().await;
    let expired = |state: &mut State| state.timestamp_expires = PAST;
    let refreshes = [
        Files(BTreeMap::new()),
        State::at(6, 6).with(expired).files(),
        State::at(4, 4).files(),
    ];
    let mut text = String::new();
    for files in refreshes {
        let failure = client.source().refresh(files).await.err().unwrap();
        text += &rendered(&failure);
    }
    let recorded = include_str!("messages.txt");
    assert_eq!(text, recorded, "copy the left side to messages.txt");
}

#[tokio::test]
async fn rejected_refresh_keeps_its_valid_versions() {
    let client = Client::at_five().await;
    // The signature of the timestamp is valid. The signature of the snapshot is not valid.
    let bad_snapshot = |state: &mut State| state.signers[1] = "eve";
    let forged = "BUNDLE-TRUST-053";
    client
        .rejects(&State::at(7, 7).with(bad_snapshot), forged)
        .await;
    // Metadata that is older than the valid timestamp is a replay, even though no newer refresh was
    // complete.
    for version in [5, 6] {
        let why = format!("has version {version}, older than the trusted version 7");
        client.rejects(&State::at(version, version), &why).await;
    }
    // Targets metadata that is older than in the last complete refresh is rejected too.
    client.rejects(&State::at(8, 4), "targets.json").await;
    // The signatures of timestamp and snapshot are valid. The signature of the targets is not
    // valid.
    let bad_targets = |state: &mut State| state.signers[2] = "eve";
    client
        .rejects(&State::at(9, 9).with(bad_targets), forged)
        .await;
    // Another timestamp without a valid snapshot does not reset the version.
    client
        .rejects(&State::at(10, 9).with(bad_snapshot), forged)
        .await;
    let why = "has version 8, older than the trusted version 9";
    client.rejects(&State::at(11, 8), why).await;
    client
        .rejects(&State::at(10, 10), "older than the trusted version 11")
        .await;
    // The complete metadata is still used offline, and newer metadata is accepted.
    client.source().stored_targets().await.unwrap();
    client.accepts(&State::at(12, 12)).await;
    client
        .rejects(&State::at(11, 11), "older than the trusted version 12")
        .await;
}

#[tokio::test]
async fn unreachable_repository_does_not_reset_versions() {
    let client = Client::at_five().await;
    let bad_snapshot = |state: &mut State| state.signers[1] = "eve";
    client
        .rejects(&State::at(7, 7).with(bad_snapshot), "BUNDLE-TRUST-053")
        .await;
    let nothing = client.source().refresh(Files(BTreeMap::new())).await;
    let message = format!("{:?}", nothing.err().unwrap());
    assert!(message.contains("BUNDLE-TRUST-050"), "{message}");
}

#[tokio::test]
async fn root_is_stored_at_once_even_if_the_refresh_is_rejected() {
    let client = Client::at_five().await;
    let second = |state: &mut State| {
        state.root = 2;
        state.keys[0] = "second";
        state.signers[0] = "second";
        state.timestamp_expires = PAST;
    };
    client
        .rejects(&State::at(6, 6).with(second), "BUNDLE-TRUST-051")
        .await;
    // The mirror hides the second root, and serves metadata that the revoked key signed.
    client.rejects(&State::at(7, 7), "BUNDLE-TRUST-053").await;
}

#[tokio::test]
async fn root_with_other_keys_recovers_from_a_fast_forward_attack() {
    for rotated in [0, 1] {
        let client = Client::at_five().await;
        // An attacker with the keys has increased the versions as far as possible.
        let bad_targets = |state: &mut State| state.signers[2] = "eve";
        client
            .rejects(
                &State::at(1_000, 1_000).with(bad_targets),
                "BUNDLE-TRUST-053",
            )
            .await;
        client.rejects(&State::at(2_000, 6), "targets.json").await;
        client
            .rejects(&State::at(6, 6), "older than the trusted version 2000")
            .await;
        let second = |state: &mut State| {
            state.root = 2;
            state.keys[rotated] = "second";
            state.signers[rotated] = "second";
        };
        client.accepts(&State::at(6, 6).with(second)).await;
        client
            .rejects(
                &State::at(5, 5).with(second),
                "older than the trusted version 6",
            )
            .await;
        // A new root with unchanged keys does not reset the minimum versions.
        let third = |state: &mut State| {
            second(state);
            state.root = 3;
        };
        client
            .rejects(
                &State::at(5, 5).with(third),
                "older than the trusted version 6",
            )
            .await;
    }
}
