//! Fuzzes the parser of `bundle.yaml`. The result must be a package, or findings with an error. The
//! title annotation of a package must be the name of the package.
#![no_main]

use bundle_core::package;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match package::parse(data) {
        Ok(package) => {
            let annotations = package::annotations(&package);
            assert_eq!(annotations[package::keys::TITLE], package.name);
        }
        Err(findings) => assert!(findings.has_errors()),
    }
});
