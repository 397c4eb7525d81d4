//! Fuzzes the parser of image references. A printed reference must be parsed to the same reference.
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
