//! Tests that content is not signed if a parser accepts it as a payload or a manifest. The tests
//! use many encodings of payloads and manifests.

use bundle_core::reference::Digest;
use proptest::prelude::*;

use super::readers::READERS;
use super::{check_attested_not_image, check_not_image};
use crate::statement;

const DIGEST: &str = "sha256:43b5773065685e5f2bbb174c527c60aa28e180ceba4801fa2e56c990c1a4f073";

/// Random choices for the encoding of a document.
struct RandomChoices(u64);

impl RandomChoices {
    fn next(&mut self, choices: u64) -> u64 {
        let drawn = self.0 % choices;
        self.0 = (self.0 / choices).rotate_left(7) ^ 0x9e37_79b9;
        drawn
    }

    /// Returns a key unchanged, in upper case, with an escape, or with a letter that Go treats as
    /// equal.
    fn key(&mut self, name: &str) -> String {
        match self.next(6) {
            0 => name.to_uppercase(),
            1 => name.replacen('a', "\\u0061", 1),
            2 => name.replacen('s', "\u{17f}", 1),
            _ => name.to_owned(),
        }
    }

    /// Returns the JSON of a struct with these fields, encoded as an object or as a list. The object
    /// can contain the same key several times.
    fn structure(&mut self, fields: &[(&str, String)]) -> String {
        let values: Vec<&str> = fields.iter().map(|(_, value)| value.as_str()).collect();
        match self.next(3) {
            0 => format!("[{}]", values.join(", ")),
            1 => format!("[{}, null]", values.join(",")),
            _ => {
                let mut parts: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("\"{}\": {value}", self.key(name)))
                    .collect();
                match self.next(4) {
                    0 => parts.insert(0, parts[0].replace(": ", ": null, \"x\": ")),
                    1 => parts.push("\"more\": [[{}]]".to_owned()),
                    _ => {}
                }
                format!("{{{}}}", parts.join(","))
            }
        }
    }

    fn payload(&mut self) -> String {
        let digest = format!("\"{DIGEST}\"");
        let image = self.structure(&[("docker-manifest-digest", digest)]);
        let kind = format!("\"{}\"", statement::SIMPLE);
        let critical = if self.next(2) == 0 {
            self.structure(&[("image", image), ("type", kind)])
        } else {
            let name = self.structure(&[("docker-reference", "\"x\"".to_owned())]);
            self.structure(&[("identity", name), ("image", image), ("type", kind)])
        };
        self.structure(&[("critical", critical)])
    }

    fn manifest(&mut self) -> String {
        let one = self.structure(&[("digest", format!("\"{DIGEST}\""))]);
        let version = ("schemaVersion", "2".to_owned());
        let kind = ("mediaType", "null".to_owned());
        let list = format!("[{one}]");
        if self.next(2) == 0 {
            self.structure(&[version, kind, ("manifests", list)])
        } else {
            self.structure(&[version, kind, ("config", one), ("layers", list)])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn rejects_content_that_any_reader_accepts_as_payload_or_manifest(
        drawn in any::<u64>(),
        at in any::<usize>(),
        with in prop::option::of(any::<u8>()),
    ) {
        let mut draws = RandomChoices(drawn);
        let is_payload = draws.next(2) == 0;
        let mut text = if is_payload { draws.payload() } else { draws.manifest() }.into_bytes();
        if let Some(with) = with {
            let at = at % text.len();
            text[at] = with;
        }
        let digest: Digest = DIGEST.parse().unwrap();
        let shown = String::from_utf8_lossy(&text);
        for (name, takes) in READERS {
            if takes(&text) {
                prop_assert!(check_not_image(&text).is_err(), "{name}: {shown}");
                if name.ends_with("manifest") {
                    prop_assert!(check_attested_not_image(&text).is_err(), "{name}: {shown}");
                }
            }
        }
        // Each file that this project reads as a payload is also detected by the simplest model.
        if statement::read_simple(&text, &digest).is_ok() {
            prop_assert!(READERS[0].1(&text), "{shown}");
            prop_assert!(check_not_image(&text).is_err(), "{shown}");
        }
    }
}

#[test]
fn each_reader_accepts_its_example() {
    let mut taken = [false; READERS.len()];
    for seed in 0..5_000_u64 {
        let mut draws = RandomChoices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for text in [draws.payload(), draws.manifest()] {
            for (at, (_, takes)) in READERS.iter().enumerate() {
                taken[at] |= takes(text.as_bytes());
            }
        }
    }
    assert_eq!(taken, [true; READERS.len()]);
}
