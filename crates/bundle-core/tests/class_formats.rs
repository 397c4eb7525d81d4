//! The format in which a class reads content.

use bundle_core::package::Format;
use bundle_core::review::Class;
use serde_json::json;

#[test]
fn content_without_a_sign_of_a_format_is_a_chart_for_the_provisioner_of_charts() {
    let class = |name: &str| {
        let provisioner = format!("core.rukpak.io/{name}");
        Class::parse("web", &json!({ "provisioner": provisioner })).unwrap()
    };
    for (provisioner, found, is_declared, expected) in [
        ("helm", Format::PlainV0, false, Some(Format::HelmV3)),
        ("helm", Format::HelmV3, false, Some(Format::HelmV3)),
        ("helm", Format::PlainV0, true, None),
        ("helm", Format::RegistryV1, false, None),
        ("plain", Format::PlainV0, false, Some(Format::PlainV0)),
        ("plain", Format::HelmV3, false, None),
        ("registry", Format::PlainV0, false, None),
    ] {
        let format = class(provisioner).format(found, is_declared);
        assert_eq!(format.ok(), expected, "{provisioner} {found}");
    }
}
