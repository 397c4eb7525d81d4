//! Messages about proof annotations and trust roots. `cargo xtask gen` copies `messages.txt` to the
//! page about diagnostics.

use bundle_core::diagnostic::rendered;
use bundle_core::policy::RawSignature;
use bundle_core::reference::{Digest, Reference};

use crate::root::Root;
use crate::{proof, proof_annotation};

const RECORDED: &str = include_str!("messages.txt");
const MANIFEST: &[u8] = br#"{"schemaVersion":2}"#;

#[test]
fn messages_of_signatures_are_recorded() {
    let proof = proof_annotation::encode(MANIFEST, &[]).unwrap();
    let other = proof_annotation::decode(&proof, &Digest::of(b"{}")).unwrap_err();
    let noise: String = (0..3_000_u32)
        .map(|number| Digest::of(&number.to_le_bytes()).hex().to_owned())
        .collect();
    let large = RawSignature {
        bytes: noise.into(),
        ..RawSignature::default()
    };
    let reference = format!("registry.example.com/team/web@{}", Digest::of(MANIFEST));
    let pinned = reference.parse::<Reference>().unwrap().pinned().unwrap();
    let findings = [
        proof::interrupted(30, &pinned).0,
        Root::public()
            .unwrap()
            .check("2126-01-01T00:00:00Z".parse().unwrap())
            .unwrap_err(),
        proof_annotation::as_ignored(other),
        proof_annotation::encode(MANIFEST, &[large]).unwrap_err(),
    ];
    let text = rendered(&findings);
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
