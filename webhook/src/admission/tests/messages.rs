//! Messages of rejections that `bundle_core::review::judge` does not return, for example at a
//! deadline. `cargo xtask gen` copies `messages.txt` to the page about diagnostics.

use bundle_core::diagnostic::rendered;
use bundle_core::plan::crd_upgrade::guard::{DefinitionOwner, judge_update};
use bundle_core::review::config_maps::{ConfigMapOperation, judge_config_map};

use super::*;
use crate::admission::{definitions, rejections, review};
use crate::registrations;

const RECORDED: &str = include_str!("messages.txt");

#[test]
fn messages_of_other_rejections_are_recorded() {
    let body = br#"{"apiVersion": "v1", "kind": "Pod", "request": null}"#;
    let in_use = judge_config_map(
        "web-manifests",
        ConfigMapOperation::Delete,
        &["web-4f2a9c".to_owned()],
    );
    let definition = |required: Value| json!({"metadata": {"name": "jugs.example.com"}, "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"required": required}}}]}});
    let owner = DefinitionOwner {
        deployment: "shop".to_owned(),
        ..DefinitionOwner::default()
    };
    let unsafe_update = judge_update(
        &definition(json!([])),
        &definition(json!(["spec"])),
        &owner,
        None,
    );
    let findings = [
        rejections::deadline_exceeded(Duration::from_secs(8)),
        rejections::malformed(&review::read(body, &Cancellation::default()).unwrap_err()),
        registrations::altered("ValidatingWebhookConfiguration bundle-webhook does not exist"),
        rejections::objects_too_large(90 << 20, 64 << 20),
        rejections::no_memory(Duration::from_secs(4)),
        rejections::memory_of_requester_in_use(),
        rejections::too_many_waiting_reviews(),
        rejections::no_memory_for_image(),
        rejections::no_memory_for_proof(),
        rejections::no_memory_for_facts(),
        rejections::no_verification_slot(Duration::from_secs(2)),
        in_use.unwrap(),
        unsafe_update.first().unwrap().clone(),
        definitions::owner_unknown(
            "jugs.example.com",
            "the inventories were not read within 4s",
        ),
    ];
    let text = rendered(&findings);
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
