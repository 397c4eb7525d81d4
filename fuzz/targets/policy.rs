//! Fuzzes the parser of the spec of a SignaturePolicy. A policy without problems must name at least
//! as many distinct signers as its threshold. Content without signatures must satisfy no policy.
#![no_main]

use bundle_core::diagnostic::Finding;
use bundle_core::policy::{
    ClassSignatures, KeyId, KeyParser, Matcher, Policy, PolicyDecision, RootId, decide, glob,
};
use bundle_core::reference::{Digest, Reference};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Uses the text of a key or trust root as its ID.
struct TextParser;

impl KeyParser for TextParser {
    fn key(&mut self, pem: &str) -> Result<KeyId, Finding> {
        Ok(KeyId::new(pem))
    }

    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding> {
        Ok(RootId::new(text.unwrap_or_default()))
    }
}

fuzz_target!(|data: &[u8]| {
    let reference: Reference = "registry.example.com/team/web:1".parse().expect("a reference");
    if let Ok(text) = std::str::from_utf8(data) {
        if glob::problem(text).is_none() {
            let example = glob::example(text).expect("an accepted pattern has an example");
            assert!(glob::matches(text, &example));
            let _ = glob::matches(text, "registry.example.com/team/web");
        }
        if let Ok(exact) = Matcher::exact(text) {
            assert!(exact.matches(text) && !exact.matches(&format!("{text} ")));
        }
        if let Ok(pattern) = Matcher::pattern(text) {
            let _ = pattern.matches("https://example.com/workflow.yaml@refs/heads/main");
        }
    }
    let Ok(spec) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let policy = Policy::read("fuzzed", &spec);
    let ready = policy.with_keys(&mut TextParser);
    assert!(ready.problems.has_errors() || !ready.unavailable.is_empty() || ready.distinct() >= policy.threshold());
    let pinned = reference.pin(Digest::of(b"content"));
    // Without signatures, no policy admits content under `Required`.
    let decision = decide(&pinned, Ok(&[]), &[ready], ClassSignatures::Required);
    assert!(!matches!(decision, PolicyDecision::Satisfied(_)));
});
