//! Registries without a referrers API. They respond with different statuses. For each of them,
//! sign, attest, verify, copy and save use the fallback tag.

use bundle_testkit::registry::{Fault, Registry, Settings};

use crate::context::Context;

fn without_api(context: &Context, fault: &Fault) -> Registry {
    let settings = Settings {
        referrers_api: false,
        ..Settings::default()
    };
    let registry = context.runtime().block_on(Registry::start(settings));
    let registry = registry.unwrap();
    registry.set_fault(Some(fault.clone()));
    registry
}

#[test]
fn signatures_work_for_each_response_of_a_missing_referrers_api() {
    for fault in [
        Fault::ReferrersApi(400),
        Fault::ReferrersApi(406),
        Fault::ReferrersPage(200),
        Fault::ReferrersPage(406),
    ] {
        let context = Context::new()
            .with_bundle()
            .with("BUNDLE_PASSWORD", "secret");
        context.stdout(&["keys", "generate", "-q"]);
        context.write("sbom.json", r#"{"spdxVersion": "SPDX-2.3"}"#);
        let (first, second) = (without_api(&context, &fault), without_api(&context, &fault));
        let (web, copy) = (
            first.reference("team/web:1.4.0"),
            second.reference("team/web:1.4.0"),
        );
        let pinned = context.stdout(&["push", "web", &web]);
        let digest = pinned.rsplit_once("sha256:").unwrap().1;
        context.stdout(&["sign", &web, "--key", "bundle.key"]);
        let attest = ["attest", &web, "--key", "bundle.key", "--type", "spdxjson"];
        context.stdout(&[&attest[..], &["--predicate", "sbom.json"]].concat());
        context.stdout(&["copy", &web, &copy]);
        context.stdout(&["save", &web, "--to", "web.tar"]);
        for reference in [&web, &copy] {
            context.stdout(&["verify", reference, "--key", "bundle.pub"]);
            let attestation = ["--attestation", "spdxjson", "--key", "bundle.pub"];
            context.stdout(&[&["verify", reference][..], &attestation].concat());
        }
        let tag = format!("sha256-{digest}");
        for registry in [&first, &second] {
            assert!(registry.manifest("team/web", &tag).is_some(), "{fault:?}");
        }
        // The archive contains the referrers.
        let third = without_api(&context, &fault);
        let loaded = third.reference("team/web:1.4.0");
        context.stdout(&["copy", "web.tar", &loaded]);
        context.stdout(&["verify", &loaded, "--key", "bundle.pub"]);
    }
}

#[test]
fn copies_unsigned_content_without_a_referrers_api() {
    for status in [400, 404, 405, 406, 501] {
        let context = Context::new().with_bundle();
        let fault = Fault::ReferrersPage(status);
        let (first, second) = (without_api(&context, &fault), without_api(&context, &fault));
        let web = first.reference("team/web:1.4.0");
        context.stdout(&["push", "web", &web]);
        context.stdout(&["copy", &web, &second.reference("team/web:1.4.0")]);
    }
}
