//! Tests of plain HTTP for registries on other machines, which registries.conf or the caller can
//! allow, and of the network zones of URLs that servers return.

use std::future::ready;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use url::Url;

use super::*;
use crate::registry::http::zone::NetworkZone;
use crate::registry::transport::{ReceivedUrl, RegistryRequest, RequestTarget};

/// A resolver that maps each name to a loopback address.
#[derive(Debug)]
struct Loopback;

impl NameResolver for Loopback {
    fn resolve(&self, _: &str) -> BoxFuture<'static, HostAddresses> {
        ready(Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()])).boxed()
    }
}

/// A resolver that fails with `LookupLimit` while the value is `true`.
#[derive(Debug)]
struct Limited(Arc<AtomicBool>);

impl NameResolver for Limited {
    fn resolve(&self, host: &str) -> BoxFuture<'static, HostAddresses> {
        if !self.0.load(Ordering::SeqCst) {
            return Loopback.resolve(host);
        }
        ready(Err(std::io::Error::other(LookupLimit))).boxed()
    }
}

/// Returns a client with this registries.conf.
fn with_settings(text: &str) -> Client {
    with_resolver(text, Arc::new(Loopback), Deadlines::default())
}

fn with_resolver(text: &str, resolver: Arc<dyn NameResolver>, deadlines: Deadlines) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registries.conf");
    fs_err::write(&file, text).unwrap();
    Client::new(ClientOptions {
        mirrors: Mirrors::read(&[file]).unwrap(),
        resolver: Some(resolver),
        deadlines,
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
        (strict.with_speculative_reads(), false),
        (strict.clone(), false),
        (strict.with_verified_registry(&named), false),
        // The read over TLS fails, and is sent again over plain HTTP.
        (insecure(&strict).with_speculative_reads(), true),
        (insecure(&strict), true),
        (listed.clone(), true),
        // The security that the caller requires overrides registries.conf.
        (listed.with_verified_registry(&named), false),
        (insecure(&listed), true),
        // A client without the permission does not use the cached endpoint of a client with the
        // permission.
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
    // The permission for plain HTTP does not apply to another registry.
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
    // `location` names the same registry with another spelling.
    let settings = format!(
        "[[registry]]\nprefix = \"mirror.example.com:{port}\"\nlocation = \"mirror.example.com:{port}\"\ninsecure = true\n"
    );
    for (named, is_verified) in [
        ("MIRROR.example.com", true),
        ("mirror.example.com", true),
        ("mirror.example.com", false),
    ] {
        let named = format!("{named}:{port}");
        let reference: Reference = format!("{named}/team/web:1.4.0").parse().unwrap();
        let mut client = with_settings(&settings);
        if is_verified {
            client = client.with_verified_registry(&named);
        }
        let resolved = client.resolve(&reference).await;
        assert_eq!(resolved.is_ok(), !is_verified, "{named} {resolved:?}");
    }
}

#[tokio::test]
async fn limit_of_one_caller_does_not_disable_a_mirror() {
    let registry = Registry::without_faults().await.unwrap();
    let digest = pushed(&registry).await.digest().clone();
    let host = registry.host();
    let (_, port) = host.rsplit_once(':').unwrap();
    let settings = format!(
        "[[registry]]\nprefix = \"registry.example.com\"\nlocation = \"127.0.0.1:1\"\n[[registry.mirror]]\nlocation = \"mirror.example.com:{port}\"\ninsecure = true\n"
    );
    let limited = Arc::new(AtomicBool::new(true));
    let resolver = Arc::new(Limited(limited.clone()));
    let client = with_resolver(&settings, resolver, Deadlines::default());
    let reference: Reference = "registry.example.com/team/web:1.4.0".parse().unwrap();
    client.resolve(&reference).await.unwrap_err();
    limited.store(false, Ordering::SeqCst);
    assert_eq!(client.resolve(&reference).await.unwrap(), digest);
}

#[tokio::test]
async fn stalled_target_of_a_redirect_does_not_disable_a_mirror() {
    let [origin, mirror, stalled] = [
        Registry::without_faults().await.unwrap(),
        Registry::without_faults().await.unwrap(),
        Registry::without_faults().await.unwrap(),
    ];
    let digest = pushed(&origin).await.digest().clone();
    pushed(&mirror).await;
    let target = format!("http://{}/v2/team/web/blobs", stalled.host());
    mirror.set_fault(Some(Fault::RedirectBlobs(target)));
    stalled.set_fault(Some(Fault::NoResponse));
    let settings = format!(
        "[[registry]]\nprefix = \"registry.example.com\"\nlocation = \"{}\"\n[[registry.mirror]]\nlocation = \"{}\"\n",
        origin.host(),
        mirror.host()
    );
    let deadlines = Deadlines {
        stall: Duration::from_millis(300),
        pause: Duration::from_millis(1),
        ..Deadlines::default()
    };
    let client = with_resolver(&settings, Arc::new(Loopback), deadlines);
    let reference: Reference = "registry.example.com/team/web:1.4.0".parse().unwrap();
    let pinned = reference.pin(digest);
    let pulled = client.pull_files(&pinned, &Limits::default()).await;
    assert_eq!(pulled.unwrap(), files("a: 1\n"));
    let before = mirror.lines().len();
    client.manifest(&pinned).await.unwrap();
    assert!(mirror.lines().len() > before, "the mirror is used");
    // A mirror that does not respond is not used for some time.
    mirror.set_fault(Some(Fault::NoResponse));
    client.manifest(&pinned).await.unwrap();
    mirror.set_fault(None);
    let before = mirror.lines().len();
    client.manifest(&pinned).await.unwrap();
    assert_eq!(mirror.lines().len(), before);
}

#[tokio::test]
async fn stalled_read_of_content_disables_a_mirror_only_for_its_repository() {
    let [origin, mirror] = [
        Registry::without_faults().await.unwrap(),
        Registry::without_faults().await.unwrap(),
    ];
    let digest = pushed(&origin).await.digest().clone();
    pushed(&mirror).await;
    let settings = format!(
        "[[registry]]\nprefix = \"registry.example.com\"\nlocation = \"{}\"\n[[registry.mirror]]\nlocation = \"{}\"\n",
        origin.host(),
        mirror.host()
    );
    let deadlines = Deadlines {
        stall: Duration::from_millis(200),
        pause: Duration::from_millis(1),
        ..Deadlines::default()
    };
    let new_client = || with_resolver(&settings, Arc::new(Loopback), deadlines);
    let reference: Reference = "registry.example.com/team/web:1.4.0".parse().unwrap();
    let pinned = reference.pin(digest);
    let manifest = new_client().manifest(&pinned).await.unwrap();
    let repository = Repository::from(pinned.reference());
    let other: Repository = "registry.example.com/team/other".parse().unwrap();
    let digest = pinned.digest();
    for path in [
        format!("blobs/{}", manifest.layers[0].digest),
        format!("manifests/{digest}"),
        "manifests/1.4.0".to_owned(),
        format!("referrers/{digest}"),
    ] {
        let client = new_client();
        // The mirror responds to no read, like a mirror that stores a large image before it
        // responds.
        mirror.set_fault(Some(Fault::NoContent));
        client
            .send(&RegistryRequest::get(&repository, path.clone()))
            .await
            .ok();
        mirror.set_fault(None);
        let before = mirror.lines().len();
        client.manifest(&pinned).await.unwrap();
        assert_eq!(mirror.lines().len(), before, "{path}");
        let ask = RegistryRequest::get(&other, "manifests/1.4.0".to_owned());
        client.send(&ask).await.unwrap_err();
        assert!(mirror.lines().len() > before, "{path}");
    }
}

#[tokio::test]
async fn url_that_a_server_returned_leads_to_no_nearer_zone() {
    let registry = Registry::without_faults().await.unwrap();
    pushed(&registry).await;
    let host = registry.host();
    let (_, port) = host.rsplit_once(':').unwrap();
    let repository: Repository = format!("{host}/team/web").parse().unwrap();
    let client = with_settings("");
    // The name of the page resolves to a loopback address.
    let page = format!("http://pages.example.com:{port}/v2/team/web/tags/list");
    let page: Url = page.parse().unwrap();
    for (zone, is_sent) in [
        (NetworkZone::Public, false),
        (NetworkZone::Private, false),
        (NetworkZone::Local, true),
    ] {
        let ask = RegistryRequest {
            target: RequestTarget::Url(ReceivedUrl::from_zone(page.clone(), zone)),
            ..RegistryRequest::get(&repository, String::new())
        };
        match client.send(&ask).await {
            Ok(_) => assert!(is_sent, "{zone:?}"),
            Err(RegistryErrorReason::Redirect { .. }) => assert!(!is_sent, "{zone:?}"),
            Err(reason) => panic!("{zone:?}: {reason}"),
        }
    }
    // A URL on the registry itself is always allowed.
    let own = format!("http://{host}/v2/team/web/tags/list");
    let own: Url = own.parse().unwrap();
    let ask = RegistryRequest {
        target: RequestTarget::Url(ReceivedUrl::from_zone(own, NetworkZone::Public)),
        ..RegistryRequest::get(&repository, String::new())
    };
    client.send(&ask).await.unwrap();
}
