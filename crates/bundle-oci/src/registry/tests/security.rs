//! Plain HTTP for registries on other machines: allowed by the settings, or for one registry.

use std::future::ready;
use std::net::Ipv4Addr;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::*;

/// A resolver that maps each name to a loopback address.
#[derive(Debug)]
struct Loopback;

impl NameResolver for Loopback {
    fn resolve(&self, _: &str) -> BoxFuture<'static, HostAddresses> {
        ready(Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()])).boxed()
    }
}

/// Returns a client with this registries.conf.
fn with_settings(text: &str) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registries.conf");
    fs_err::write(&file, text).unwrap();
    Client::new(ClientOptions {
        mirrors: Mirrors::read(&[file]).unwrap(),
        resolver: Some(Arc::new(Loopback)),
        ..ClientOptions::default()
    })
    .unwrap()
}

#[tokio::test]
async fn plain_http_needs_a_setting_or_a_permission_for_the_registry() {
    let registry = Registry::without_faults().await.unwrap();
    let digest = pushed(&registry).await.digest().clone();
    let host = registry.host();
    let (_, port) = host.rsplit_once(':').unwrap();
    let (named, other) = (
        format!("registry.example.com:{port}"),
        format!("other.example.com:{port}"),
    );
    let resolve = async |client: &Client, host: &str| {
        let reference: Reference = format!("{host}/team/web:1.4.0").parse().unwrap();
        client.resolve(&reference).await
    };
    let strict = with_settings("");
    let listed = with_settings(&format!(
        "[[registry]]\nprefix = \"{named}\"\ninsecure = true\n"
    ));
    let insecure = |client: &Client| client.with_insecure_registry(&named);
    for (client, is_resolved) in [
        (strict.clone(), false),
        (strict.with_verified_registry(&named), false),
        (insecure(&strict), true),
        (listed.clone(), true),
        // The permission of the caller overrides the setting.
        (listed.with_verified_registry(&named), false),
        (insecure(&listed), true),
        // No client uses the endpoint that another client found.
        (strict.clone(), false),
    ] {
        let resolved = resolve(&client, &named).await;
        match resolved {
            Ok(found) => assert!(is_resolved && found == digest),
            Err(error) => {
                let is_unreachable =
                    matches!(error.reason, RegistryErrorReason::Unreachable { .. });
                assert!(!is_resolved && is_unreachable, "{error}");
            }
        }
    }
    // The permission is for one registry.
    let error = resolve(&insecure(&strict), &other).await.unwrap_err();
    assert!(
        matches!(error.reason, RegistryErrorReason::Unreachable { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn settings_decide_about_mirrors_of_a_verified_registry() {
    let registry = Registry::without_faults().await.unwrap();
    let digest = pushed(&registry).await.digest().clone();
    let host = registry.host();
    let (_, port) = host.rsplit_once(':').unwrap();
    let named = "registry.example.com";
    let reference: Reference = format!("{named}/team/web:1.4.0").parse().unwrap();
    for (insecure, is_resolved) in [("true", true), ("false", false)] {
        let client = with_settings(&format!(
            "[[registry]]\nprefix = \"{named}\"\nlocation = \"mirror.example.com:{port}\"\ninsecure = {insecure}\n"
        ));
        let client = client.with_verified_registry(named);
        let resolved = client.resolve(&reference).await;
        assert_eq!(resolved.ok() == Some(digest.clone()), is_resolved);
    }
}
