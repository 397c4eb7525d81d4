//! Memory and time that the pod needs to unpack, parse and install large content, also during an
//! attack.

mod attempts;
mod cache;
mod control_characters;
mod restarts;
mod roles;

use bundle_testkit::file_server::{FileResponse, FileServer};
use e2e::webhook::NAMESPACE;

use super::*;

/// Memory that two contents of 100 MiB may add to the memory of the idle process, in KiB.
const STREAMED_KIB: u64 = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn content_of_100_mebibytes_is_unpacked_without_its_size_in_memory() {
    let (cluster, mut webhook) = stage().await;
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
        "metadata": {"name": "streamed"},
        "spec": {
            "provisioner": "core.rukpak.io/plain",
            "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
            "sources": {"privateAddresses": "Allow"},
        },
    });
    apply(&cluster, &class).await;
    // Random bytes cannot be compressed, so layer and archive have 100 MiB too.
    let manifest = config_map("streamed", "a").into_bytes();
    let mut files = vec![("manifests/a.yaml".to_owned(), manifest)];
    files.extend((0..25).map(|number| {
        let mut noise = vec![0_u8; 4 << 20];
        rand::rng().fill(&mut noise[..]);
        (format!("data/{number}.bin"), noise)
    }));
    let tar = tar(files);
    let registry = Registry::without_faults().await.unwrap();
    let (reference, _) = publish(&registry, "streamed", &tar);
    let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
    archive.write_all(&tar).unwrap();
    let archive = archive.finish().unwrap();
    let server = FileServer::start().await.unwrap();
    server.respond("/streamed.tgz", FileResponse::File(archive.into()));
    let mut archived = bundle("streamed-archive", "");
    let url = format!("http://{}/streamed.tgz", server.host());
    archived["spec"] = json!({
        "provisionerClassName": "streamed", "source": {"type": "http", "http": {"url": url}},
    });

    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &bundle("streamed-image", &reference)).await;
    apply(&cluster, &archived).await;
    for name in ["streamed-image", "streamed-archive"] {
        until_phase(&cluster, name, "Unpacked", LONG).await;
    }
    let attack = "contents of 100 MiB from a registry and a server";
    let peak = survived(attack, &mut webhook, probe).await;
    assert!(
        peak < idle + STREAMED_KIB,
        "{peak} KiB, and {idle} KiB when idle"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bundles_do_not_starve_the_probes() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let noise: String = (0..600 << 10)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    let probe = LivenessProbe::start(&webhook);
    for number in 0..6 {
        let files = (0..22).map(|file| {
            let name = format!("large-{number}-{file}");
            let path = format!("manifests/{name}.yaml");
            (path, config_map(&name, &noise).into_bytes())
        });
        let (reference, _) = publish(&registry, &format!("large{number}"), &tar(files));
        apply(&cluster, &bundle(&format!("large-{number}"), &reference)).await;
    }
    for number in 0..6 {
        until_phase(&cluster, &format!("large-{number}"), "Unpacked", LONG).await;
    }
    survived("six bundles of 13 MiB", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_content_is_installed_while_reviews_are_attacked() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let url = review_url(&cluster).await;
    let noise: String = (0..500 << 10)
        .map(|_| char::from(rand::rng().random_range(b'a'..=b'z')))
        .collect();
    // The content has 17 MiB of text. Text and parsed tree need 34 MiB of memory. The limit for one
    // content is 35 MiB.
    let files = (0..34).map(|file| {
        let name = format!("largest-{file}");
        let path = format!("manifests/{name}.yaml");
        (path, config_map(&name, &noise).into_bytes())
    });
    let (reference, _) = publish(&registry, "largest", &tar(files));
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &deployment("largest", &reference)).await;
    let body = {
        let lists = "[],".repeat((2 << 20) / 3);
        let text = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","kind":{{"group":"core.rukpak.io","version":"v1alpha1","kind":"Bundle"}},"name":"a","operation":"CREATE","userInfo":{{"username":"mallory"}},"object":{{"spec":[{lists}0]}}}}}}"#
        );
        text.into_bytes()
    };
    let attack = tokio::spawn(async move {
        loop {
            join_all((0..4).map(|_| post(&url, body.clone()))).await;
        }
    });
    wait::until_true(LONG, "the content is installed", || async {
        let object = try_get(&cluster, "bundledeployment largest").await?;
        Ok(condition(&object.unwrap_or_default(), "Installed")["status"] == "True")
    })
    .await
    .unwrap();
    attack.abort();
    survived(
        "the largest content, with reviews of lists",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_objects_above_the_memory_limit_are_not_parsed() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "heaps.limits.example.com"},
        "spec": {
            "group": "limits.example.com",
            "names": {"kind": "Heap", "listKind": "HeapList", "plural": "heaps", "singular": "heap"},
            "scope": "Cluster",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let heap = |number: usize| {
        json!({
            "apiVersion": "limits.example.com/v1",
            "kind": "Heap",
            "metadata": {"name": format!("heap-{number}")},
        })
    };
    let mut objects = vec![definition];
    objects.extend((0..3).map(heap));
    let files = objects.iter().enumerate().map(|(number, object)| {
        let path = format!("manifests/{number}.yaml");
        (path, object.to_string().into_bytes())
    });
    let (reference, _) = publish(&registry, "heaps", &tar(files));
    let probe = LivenessProbe::start(&webhook);
    apply(&cluster, &deployment("heaps", &reference)).await;
    let healthy = |status: &'static str, reported: &'static str| {
        let cluster = &cluster;
        wait::until(LONG, reported, move || async move {
            let object = try_get(cluster, "bundledeployment heaps").await?;
            let object = object.unwrap_or_default();
            let found = condition(&object, "Healthy");
            let message = found["message"].as_str().unwrap_or_default();
            if found["status"] == status && message.contains(reported) {
                return Ok(Some(()));
            }
            anyhow::bail!("{found}")
        })
    };
    healthy("True", "every object is healthy").await.unwrap();
    let maps = vec![json!({"a": 0}); 120_000];
    for number in 0..3 {
        let mut heap = heap(number);
        heap["maps"] = json!(maps);
        let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
        let applied = kubectl
            .args(["apply", "--server-side", "--field-manager=mallory"])
            .args(["-f", "-"])
            .stdin(heap.to_string())
            .output()
            .await
            .unwrap();
        applied.success().unwrap();
    }
    healthy("False", "too large to be read").await.unwrap();
    survived("installed objects of small maps", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_layer_that_unpacks_to_a_hundred_mebibytes_does_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let mut noise = vec![0; 700 << 10];
    rand::rng().fill(&mut noise[..]);
    let comments = format!("# {}\n", "a".repeat(97)).repeat((1 << 20) / 100);
    let manifests = (0..117).map(|number| {
        let text = format!("{}{comments}", config_map(&format!("c{number}"), "a"));
        (format!("manifests/{number:03}.yaml"), text.into_bytes())
    });
    // This file is first, so that the compression ratio remains below its limit while the other
    // files are unpacked.
    let files = [("noise.bin".to_owned(), noise)]
        .into_iter()
        .chain(manifests);
    let (reference, size) = publish(&registry, "bomb", &tar(files));
    record(&format!("the layer has {} KiB", size >> 10));
    let probe = LivenessProbe::start(&webhook);
    for number in 0..3 {
        let name = format!("bomb-{number}");
        apply(&cluster, &bundle(&name, &reference)).await;
    }
    for number in 0..3 {
        let name = format!("bomb-{number}");
        wait::until_true(LONG, "the Bundle is unpacked or refused", || async {
            let (phase, _) = phase(&cluster, &name).await;
            Ok(phase == "Unpacked" || phase == "Failing")
        })
        .await
        .unwrap();
    }
    survived(
        "a layer of 1 MiB that unpacks to 120 MiB",
        &mut webhook,
        probe,
    )
    .await;
}
