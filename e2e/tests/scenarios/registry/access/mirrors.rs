//! Proxies from the environment, and mirrors from `registries.conf`.

use std::time::Duration;

use e2e::registry::proxy::Proxy;
use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::{Registry, wait};

use super::{Scene, refused};

const LONG: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn uses_proxies_from_the_environment() {
    let scene = Scene::new();
    let registry = scene
        .bench
        .registry_with(RegistryOptions {
            tls: true,
            ..RegistryOptions::default()
        })
        .await
        .unwrap();
    let proxy = Proxy::start().await.unwrap();
    let port = registry.host().rsplit_once(':').unwrap().1.to_owned();
    // Only the proxy can resolve this name.
    let name = format!("registry.example.com:{port}");
    let ca = registry.ca().unwrap().display();
    let push = format!("push bundle {name}/team/web:1 --registry-ca {ca}");
    let url = proxy.url();
    scene
        .run_with(&push, &[("HTTPS_PROXY", &url)], "")
        .await
        .success()
        .unwrap();
    assert!(
        proxy.requested_hosts().contains(&name),
        "{:?}",
        proxy.requested_hosts()
    );

    let before = proxy.requested_hosts().len();
    let variables = [
        ("HTTPS_PROXY", url.as_str()),
        ("NO_PROXY", "registry.example.com"),
    ];
    refused(
        scene.run_with(&push, &variables, "").await,
        4,
        &["is unreachable", "REGISTRY-001"],
    );
    // Clients never use a proxy for loopback addresses.
    let direct = format!(
        "push bundle {} --registry-ca {ca}",
        registry.reference("team/web:1")
    );
    scene
        .run_with(&direct, &[("HTTPS_PROXY", &url)], "")
        .await
        .success()
        .unwrap();
    assert_eq!(proxy.requested_hosts().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_read_from_and_never_written_to() {
    let scene = Scene::new();
    let crane = || RegistryOptions {
        program: RegistryProgram::Crane,
        ..RegistryOptions::default()
    };
    let origin: Registry = scene.bench.registry().await.unwrap();
    let mirror = scene.bench.registry_with(crane()).await.unwrap();
    let mut dead = scene.bench.registry_with(crane()).await.unwrap();
    dead.kill().unwrap();
    let reference = origin.reference("team/web:1");
    scene
        .run(&format!("push bundle {reference}"))
        .await
        .success()
        .unwrap();
    scene
        .run(&format!("push bundle {}", mirror.reference("copies/web:1")))
        .await
        .success()
        .unwrap();

    let conf = format!(
        "[[registry]]\nprefix = \"{origin}/team\"\n[[registry.mirror]]\nlocation = \"{dead}/x\"\n[[registry.mirror]]\nlocation = \"{mirror}/copies\"\n\
         [[registry]]\nprefix = \"{origin}/secret\"\nblocked = true\n",
        origin = origin.host(),
        dead = dead.host(),
        mirror = mirror.host(),
    );
    let file = scene.write("registries.conf", &conf);
    let file = file.display();
    let requests = |log: &str, path: &str| log.lines().filter(|line| line.contains(path)).count();
    let reads = || {
        let log = origin.log().unwrap();
        requests(&log, "\"GET /v2/team/web/blobs/") + requests(&log, "/v2/team/web/manifests/1 ")
    };
    let before = reads();
    let text = scene
        .run(&format!("inspect {reference} --registries-conf {file}"))
        .await
        .success()
        .unwrap();
    // The printed reference has the name of the original registry, even if content was read from a
    // mirror.
    assert!(text.contains(&origin.host()), "{text}");
    assert!(!text.contains(&mirror.host()), "{text}");
    // A registry logs a request only after its response, so the test waits for the log.
    wait::until_true(LONG, "the mirror logs the requests", || async {
        Ok(requests(&mirror.log()?, "/v2/copies/web/") > 3)
    })
    .await
    .unwrap();
    assert_eq!(reads(), before);

    // Content that the mirror does not have is read from the original registry.
    let alone = origin.reference("team/api:1");
    scene
        .run(&format!("push bundle {alone} --registries-conf {file}"))
        .await
        .success()
        .unwrap();
    assert_eq!(
        requests(&mirror.log().unwrap(), "/v2/copies/api/blobs/uploads"),
        0
    );
    scene
        .run(&format!("inspect {alone} --registries-conf {file}"))
        .await
        .success()
        .unwrap();

    refused(
        scene
            .run(&format!(
                "inspect {} --registries-conf {file}",
                origin.reference("secret/web:1")
            ))
            .await,
        3,
        &["blocks", "REGISTRY-027"],
    );
    let broken = scene.write("broken.conf", "[[registry]]\nprefx = \"a.example.com\"\n");
    let variables = [("CONTAINERS_REGISTRIES_CONF", broken.to_str().unwrap())];
    refused(
        scene
            .run_with(&format!("inspect {reference}"), &variables, "")
            .await,
        2,
        &["broken.conf", "prefx"],
    );

    // With `location`, the original registry gets no requests.
    let moved = format!(
        "[[registry]]\nprefix = \"{}/team\"\nlocation = \"{}/copies\"\n",
        origin.host(),
        mirror.host()
    );
    let moved = scene.write("moved.conf", moved);
    let mut origin = origin;
    origin.kill().unwrap();
    scene
        .run(&format!(
            "inspect {reference} --registries-conf {}",
            moved.display()
        ))
        .await
        .success()
        .unwrap();
}
