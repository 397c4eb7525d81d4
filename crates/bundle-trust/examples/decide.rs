//! Benchmark: decides whether signed content is admitted, with the signatures in a proof
//! annotation. The report compares the duration of the decision with the duration of its signature
//! verifications. `cargo xtask bench trust` runs this example. The arguments are the input folder
//! and the number of repetitions. The output is one line of JSON per measurement on stdout.
#![allow(
    clippy::print_stdout,
    reason = "its results go to stdout; it has no printer"
)]
#![allow(clippy::disallowed_methods, reason = "measures the rules")]

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1,
    ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use bundle_core::policy::{ClassSignatures, Policy, ReferencedText};
use bundle_core::reference::Reference;
use bundle_trust::proof::{self, ExaminationCache};
use bundle_trust::proof_annotation;
use jiff::Timestamp;
use serde_json::Value;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Number of signature verifications that one keyless signature needs, by curve. P-256: the
/// signature itself, the SCT, the SET, the checkpoint, the timestamp and the certificate of the
/// timestamp authority. P-384: two certificates, as in the public instance.
const CHAIN: [(usize, Curve); 2] = [(6, Curve::P256), (2, Curve::P384)];

#[derive(Clone, Copy)]
enum Curve {
    P256,
    P384,
}

/// Input of one measurement: a policy, and the reference and the proof annotation of an object.
struct Case {
    policy: Policy,
    reference: Reference,
    proof: String,
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: decide FOLDER COUNT".into());
    };
    let count: usize = count.parse()?;
    let folder = Path::new(&folder);
    let one = [(1, Curve::P256)];
    tell("bare-one", &bare(&one, count)?);
    tell("bare-chain", &bare(&CHAIN, count)?);
    for name in ["key", "keyless"] {
        let case = read(folder, name)?;
        let mut anew = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            decide(&case, &ExaminationCache::default())?;
            anew.push(began.elapsed());
        }
        tell(&format!("{name}-anew"), &anew);
        let memory = ExaminationCache::default();
        decide(&case, &memory)?;
        let mut remembered = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            decide(&case, &memory)?;
            remembered.push(began.elapsed());
        }
        tell(&format!("{name}-remembered"), &remembered);
    }
    Ok(())
}

fn read(folder: &Path, name: &str) -> Outcome<Case> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.json")))?;
    let case: Value = text.parse()?;
    let text = |field: &str| case[field].as_str().unwrap_or_default().to_owned();
    let root = BTreeMap::from([("root".to_owned(), ReferencedText::Found(text("root")))]);
    Ok(Case {
        policy: Policy::read("releases", &case["policy"]).with_config_maps(&root),
        reference: text("reference").parse()?,
        proof: text("proof"),
    })
}

/// Parses the annotation and makes the decision, as admission and the reconciler do.
fn decide(case: &Case, memory: &ExaminationCache) -> Outcome {
    let (pinned, carried) = proof_annotation::open(&case.proof, &case.reference)?;
    let class = ClassSignatures::Required;
    let now = Timestamp::now();
    let found = Ok(carried.signatures);
    match memory.decide(pinned, &found, [&case.policy], class, now) {
        Ok(decided) => {
            black_box(decided);
            Ok(())
        }
        Err(proof::Refusal { findings, .. }) => Err(findings.to_string().into()),
    }
}

/// Runs the signature verifications in `wanted`, and repeats them `count` times. Returns the
/// duration of each repetition. Each signed message has the size of a statement.
fn bare(wanted: &[(usize, Curve)], count: usize) -> Outcome<Vec<Duration>> {
    let message = [7; 512];
    let mut signed = Vec::new();
    for (times, curve) in wanted {
        let (signing, verifying) = match curve {
            Curve::P256 => (&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P256_SHA256_ASN1),
            Curve::P384 => (&ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1),
        };
        let pair = EcdsaKeyPair::generate(signing)?;
        let signature = pair.sign(&SystemRandom::new(), &message)?;
        let key = UnparsedPublicKey::new(verifying, pair.public_key().as_ref().to_vec());
        signed.push((*times, key, signature));
    }
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        for (times, key, signature) in &signed {
            for _ in 0..*times {
                key.verify(black_box(&message), signature.as_ref())?;
            }
        }
        took.push(began.elapsed());
    }
    Ok(took)
}

fn tell(name: &str, took: &[Duration]) {
    let mut sorted: Vec<f64> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: usize| sorted.get(sorted.len().saturating_sub(1) * share / 100);
    let line = serde_json::json!({"name": name, "p50": at(50), "p99": at(99)});
    println!("{line}");
}
