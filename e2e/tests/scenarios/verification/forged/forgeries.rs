//! Forgeries made from valid Sigstore bundles. Each forgery has one fault and an expected message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_trust::keys::PrivateKey;
use bundle_trust::sign::Annotations;
use serde_json::{Value, json};

const PAYLOAD: &str = "/dsseEnvelope/payload";
const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

/// Forgery: the uploaded artifact and the expected message.
pub(super) struct Forgery {
    pub(super) name: &'static str,
    /// Sigstore bundle, or payload of cosign 2.
    pub(super) bundle: Vec<u8>,
    /// Annotations of a payload of cosign 2. `None` for a Sigstore bundle.
    pub(super) annotations: Option<Annotations>,
    pub(super) reported: &'static str,
}

fn bundled(name: &'static str, reported: &'static str, bundle: Vec<u8>) -> Forgery {
    Forgery {
        name,
        bundle,
        annotations: None,
        reported,
    }
}

/// Returns the Sigstore bundle in the format of an earlier version.
pub(super) fn of_version(good: &Value, version: &str) -> Value {
    let mut bundle = good.clone();
    bundle["mediaType"] = json!(format!(
        "application/vnd.dev.sigstore.bundle+json;version={version}"
    ));
    let material = bundle["verificationMaterial"].as_object_mut().unwrap();
    if let Some(certificate) = material.remove("certificate") {
        let chain = json!({ "certificates": [certificate] });
        material.insert("x509CertificateChain".to_owned(), chain);
    }
    bundle
}

fn altered(good: &Value, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut bundle = good.clone();
    change(&mut bundle);
    bundle.to_string().into_bytes()
}

/// Returns the forgery that results from `change` of the valid Sigstore bundle `good`.
fn alteration(
    good: &Value,
    name: &'static str,
    reported: &'static str,
    change: impl FnOnce(&mut Value),
) -> Forgery {
    bundled(name, reported, altered(good, change))
}

fn at<'a>(bundle: &'a mut Value, pointer: &str) -> &'a mut Value {
    bundle.pointer_mut(pointer).unwrap()
}

/// Flips one bit in the middle of base64 text.
fn flip(value: &mut Value) {
    let mut bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    *value = json!(STANDARD.encode(bytes));
}

/// Changes the JSON text in a Base64 value.
fn inside(value: &mut Value, change: impl FnOnce(&mut Value)) {
    let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
    let mut inner: Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut inner);
    *value = json!(STANDARD.encode(inner.to_string()));
}

/// Returns forgeries that are possible for every valid Sigstore bundle, signed with a key or with a
/// certificate. `reported` is the message for a signature of other content. `flipped` is the
/// message for a damaged signature.
fn of_any(good: &Value, reported: &'static str, flipped: &'static str) -> Vec<Forgery> {
    let forgery = bundled;
    vec![
        alteration(good, "digest", reported, |b| {
            inside(at(b, PAYLOAD), |s| {
                s["subject"][0]["digest"]["sha256"] = json!("0".repeat(64));
            });
        }),
        alteration(good, "version", reported, |b| {
            inside(at(b, PAYLOAD), |s| {
                s["subject"][0]["annotations"] = json!({ "version": "9.9.9" });
            });
        }),
        alteration(good, "predicate", reported, |b| {
            inside(at(b, PAYLOAD), |s| {
                s["predicateType"] = json!("https://slsa.dev/provenance/v1");
            });
        }),
        alteration(good, "signature", flipped, |b| {
            flip(at(b, "/dsseEnvelope/signatures/0/sig"));
        }),
        alteration(
            good,
            "payload-type",
            "over a payload of another type",
            |b| {
                *at(b, "/dsseEnvelope/payloadType") = json!("application/json");
            },
        ),
        alteration(good, "media-type", "of an unknown format", |b| {
            b["mediaType"] = json!("application/vnd.dev.sigstore.bundle.v9+json");
        }),
        alteration(
            good,
            "two-contents",
            "both a DSSE envelope and a message signature",
            |b| {
                b["messageSignature"] = json!({ "signature": "AAAA" });
            },
        ),
        forgery("list", "not the JSON of a Sigstore bundle", {
            let envelope = &good["dsseEnvelope"];
            let material = &good["verificationMaterial"];
            let list = json!([good["mediaType"], material, envelope, null]);
            list.to_string().into_bytes()
        }),
        alteration(
            good,
            "envelope-list",
            "not the JSON of a Sigstore bundle",
            |b| {
                let envelope = &good["dsseEnvelope"];
                let fields = ["payload", "payloadType", "signatures"];
                b["dsseEnvelope"] = json!(fields.map(|field| envelope[field].clone()));
            },
        ),
        alteration(good, "capitals", "only in case", |b| {
            b["DSSEEnvelope"] = json!({});
        }),
        alteration(good, "unknown", "unknown field `conditions`", |b| {
            b["conditions"] = json!({});
        }),
        forgery("twice", "duplicate key", {
            let text = good.to_string();
            text.replacen("\"sig\":", "\"sig\":\"AAAA\",\"sig\":", 1)
                .into_bytes()
        }),
        forgery("cut", "not the JSON of a Sigstore bundle", {
            let text = good.to_string();
            text.as_bytes()[..text.len() / 2].to_vec()
        }),
    ]
}

/// Returns forgeries of a Sigstore bundle that is signed with a key. In some forgeries, the owner
/// of the key has signed a payload of an attacker.
pub(super) fn by_key(
    good: &Value,
    other: &Value,
    elsewhere: &Value,
    key: &PrivateKey,
) -> Vec<Forgery> {
    let hint = "/verificationMaterial/publicKey/hint";
    let forgery = bundled;
    let payload = good.pointer(PAYLOAD).unwrap().as_str().unwrap();
    let statement: Value = serde_json::from_slice(&STANDARD.decode(payload).unwrap()).unwrap();
    // An attacker could trick the owner of the key into signing these payloads. These payloads must
    // not be accepted as signatures of the image.
    let printed = |change: &dyn Fn(&mut Value)| {
        let mut statement = statement.clone();
        change(&mut statement);
        bundle_trust::sign::bundle(key, statement.to_string().as_bytes()).unwrap()
    };
    let mut all = of_any(good, "does not verify with it", "does not verify with it");
    all.extend([
        forgery(
            "other-key",
            "by another key",
            other.to_string().into_bytes(),
        ),
        forgery(
            "borrowed-hint",
            "does not verify with it",
            altered(other, |b| {
                *at(b, hint) = good.pointer(hint).unwrap().clone();
            }),
        ),
        forgery(
            "elsewhere",
            "for another digest",
            elsewhere.to_string().into_bytes(),
        ),
        alteration(good, "extra", "with 2 signatures in one envelope", |b| {
            let more = at(b, "/dsseEnvelope/signatures/0").clone();
            at(b, "/dsseEnvelope/signatures")
                .as_array_mut()
                .unwrap()
                .push(more);
        }),
        forgery(
            "attestation",
            "of an attestation",
            printed(&|s| {
                s["predicateType"] = json!("https://slsa.dev/provenance/v1");
            }),
        ),
        forgery(
            "subjects",
            "about 2 subjects",
            printed(&|s| {
                let one = s["subject"][0].clone();
                s["subject"] = json!([{ "digest": { "sha256": "0".repeat(64) } }, one]);
            }),
        ),
        forgery(
            "sha1",
            "for another digest",
            printed(&|s| {
                s["subject"][0]["digest"] = json!({ "sha1": "0".repeat(40) });
            }),
        ),
        forgery(
            "statement",
            "with a statement of another type",
            printed(&|s| {
                s["_type"] = json!("https://in-toto.io/Statement/v2");
            }),
        ),
        forgery("statement-list", "not an in-toto statement", {
            let list = json!([
                statement["_type"],
                statement["subject"],
                statement["predicateType"]
            ]);
            bundle_trust::sign::bundle(key, list.to_string().as_bytes()).unwrap()
        }),
        forgery("statement-twice", "duplicate key", {
            let text = statement.to_string();
            let text = text.replacen('{', "{\"subject\":[],", 1);
            bundle_trust::sign::bundle(key, text.as_bytes()).unwrap()
        }),
    ]);
    all.extend(payloads(&statement, key));
    all
}

/// Returns forgeries with payloads in cosign 2's format. The owner of the right key has signed each
/// payload as a file.
fn payloads(statement: &Value, key: &PrivateKey) -> Vec<Forgery> {
    let hex = statement.pointer("/subject/0/digest/sha256").unwrap();
    let digest = format!("sha256:{}", hex.as_str().unwrap());
    let kind = "cosign container image signature";
    let image = json!({ "docker-manifest-digest": digest });
    let whole = json!({ "critical": { "image": image, "type": kind } }).to_string();
    let payload = |name, reported, text: String| Forgery {
        name,
        annotations: Some(bundle_trust::sign::annotations(key, text.as_bytes()).unwrap()),
        bundle: text.into_bytes(),
        reported,
    };
    let unreadable = "not a simple signing payload";
    vec![
        payload(
            "payload-list",
            unreadable,
            json!([[[digest], kind], null]).to_string(),
        ),
        payload(
            "payload-list-of-objects",
            unreadable,
            json!([{ "image": image, "type": kind }, null]).to_string(),
        ),
        payload(
            "critical-list",
            unreadable,
            json!({ "critical": [image, kind] }).to_string(),
        ),
        payload(
            "payload-twice",
            "duplicate key",
            whole.replacen('{', "{\"critical\":{},", 1),
        ),
        payload(
            "payload-capitals",
            "only in case",
            whole.replacen('{', "{\"Critical\":{},", 1),
        ),
        payload(
            "critical-unknown",
            "unknown field `until`",
            whole.replacen("{\"image\"", "{\"until\":\"yesterday\",\"image\"", 1),
        ),
    ]
}

/// Returns forgeries of a Sigstore bundle that is signed with a certificate.
pub(super) fn by_certificate(good: &Value, other: &Value, elsewhere: &Value) -> Vec<Forgery> {
    let forgery = bundled;
    let entry = |path: &str| format!("{ENTRY}{path}");
    let mut all = of_any(
        good,
        "does not verify with its certificate",
        "an invalid timestamp",
    );
    all.extend([
        forgery(
            "other-name",
            "by another identity",
            other.to_string().into_bytes(),
        ),
        forgery(
            "elsewhere",
            "for another digest",
            elsewhere.to_string().into_bytes(),
        ),
        alteration(good, "extra", "malformed", |b| {
            let more = at(b, "/dsseEnvelope/signatures/0").clone();
            at(b, "/dsseEnvelope/signatures")
                .as_array_mut()
                .unwrap()
                .push(more);
        }),
        alteration(good, "time", "an invalid inclusion promise", |b| {
            let time = at(b, &entry("/integratedTime"));
            let was: i64 = time.as_str().unwrap().parse().unwrap();
            *time = json!((was - 5).to_string());
        }),
        alteration(good, "promise", "an invalid inclusion promise", |b| {
            flip(at(b, &entry("/inclusionPromise/signedEntryTimestamp")));
        }),
        alteration(good, "root", "an invalid checkpoint", |b| {
            flip(at(b, &entry("/inclusionProof/rootHash")));
        }),
        alteration(good, "proof", "an invalid inclusion proof", |b| {
            *at(b, &entry("/inclusionProof/hashes")) = json!([STANDARD.encode([7; 32])]);
        }),
        alteration(good, "checkpoint", "an invalid checkpoint", |b| {
            let note = at(b, &entry("/inclusionProof/checkpoint/envelope"));
            *note = json!(note.as_str().unwrap().replacen(" - ", " - 9", 1));
        }),
        alteration(good, "log", "an untrusted log", |b| {
            flip(at(b, &entry("/logId/keyId")));
        }),
        alteration(
            good,
            "no-entry",
            "without an entry in a transparency log",
            |b| {
                *at(b, "/verificationMaterial/tlogEntries") = json!([]);
            },
        ),
        alteration(good, "body", "invalid", |b| {
            inside(at(b, &entry("/canonicalizedBody")), |body| {
                body["spec"]["payloadHash"]["value"] = json!("0".repeat(64));
            });
        }),
        alteration(good, "certificate", "certificate", |b| {
            let theirs = other.pointer("/verificationMaterial/certificate").unwrap();
            *at(b, "/verificationMaterial/certificate") = theirs.clone();
        }),
        alteration(good, "chain", "certificate", |b| {
            flip(at(b, "/verificationMaterial/certificate/rawBytes"));
        }),
        alteration(
            &of_version(good, "0.1"),
            "unpromised-0.1",
            "an invalid inclusion promise",
            |b| {
                *at(b, &entry("/inclusionPromise")) = Value::Null;
            },
        ),
        alteration(
            &of_version(good, "0.2"),
            "unproved-0.2",
            "without an entry in a transparency log",
            |b| {
                *at(b, &entry("/inclusionProof")) = Value::Null;
            },
        ),
        alteration(
            &of_version(good, "0.2"),
            "chain-0.3",
            "requires exactly one certificate",
            |b| {
                b["mediaType"] = good["mediaType"].clone();
            },
        ),
        alteration(good, "key-beside", "both a key and a certificate", |b| {
            b["verificationMaterial"]["publicKey"] = json!({ "hint": "AAAA" });
        }),
    ]);
    all
}
