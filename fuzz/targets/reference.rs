//! A reference, as a person or a custom resource writes it: what is read prints as itself.
//! Not here: what a registry makes of it.
#![no_main]

use bundle_core::reference::Reference;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(read) = text.parse::<Reference>() {
        let printed = read.to_string();
        let again: Reference = printed.parse().expect("what is printed is read");
        assert_eq!(again, read, "{printed}");
        assert!(!printed.contains(char::is_whitespace), "{printed:?}");
    }
});
