//! Cached metadata. The metadata is used while the mirror fails. Damaged metadata is fetched again.
//! Expired metadata is rejected.

use e2e::sigstore::ServerBehavior;
use serde_json::json;

use super::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn distinguishes_failing_mirrors_from_cached_metadata() {
    let mut scene = Scene::new().await;
    scene.init().await.success().unwrap();
    let kept = scene.cache_folder();
    let stale = "2026-01-01T00:00:00Z";

    // The mirror fails: cached metadata is used, with a warning.
    for manner in [ServerBehavior::Dead, ServerBehavior::Broken] {
        scene.repository.answer(manner.clone());
        scene.asked(stale);
        let message = scene.run_plugin("trust show").await;
        assert!(
            message
                .to_string()
                .contains("is unreachable; its metadata of"),
            "{manner:?}: {message}"
        );
        message.success().unwrap();
        let refused = scene.run_plugin("trust update").await.failure(4).unwrap();
        assert!(refused.contains("BUNDLE-TRUST-050"), "{refused}");
    }
    for endless in ["timestamp.json", "2.root.json"] {
        scene.repository.answer(ServerBehavior::Endless(endless));
        let refused = scene.run_plugin("trust update").await.failure(3).unwrap();
        assert!(
            refused.contains("BUNDLE-TRUST-053") && refused.contains("more than"),
            "{refused}"
        );
    }
    scene.repository.answer(ServerBehavior::Plain);
    scene
        .repository
        .rewrite(|state| {
            for newer in ["timestamp", "snapshot", "targets"] {
                state[newer]["version"] = json!(2);
            }
        })
        .unwrap();
    for endless in ["2.snapshot.json", "2.targets.json"] {
        scene.repository.answer(ServerBehavior::Endless(endless));
        let refused = scene.run_plugin("trust update").await.failure(3).unwrap();
        assert!(refused.contains("more than"), "{refused}");
    }
    scene.repository.answer(ServerBehavior::Plain);
    scene.run_plugin("trust update").await.success().unwrap();

    // A time in the future or an invalid file causes a refresh.
    for asked in ["2089-01-01T00:00:00Z", "never"] {
        scene.asked(asked);
        scene.run_plugin("trust show").await.success().unwrap();
        let text = fs_err::read_to_string(kept.join("asked.json")).unwrap();
        assert!(!text.contains(asked), "{text}");
    }

    // Incomplete files are fetched again. With `--offline`, incomplete files are an error.
    for file in [
        "timestamp.json",
        "snapshot.json",
        "targets.json",
        "targets/trusted_root.json",
    ] {
        let whole = fs_err::read(kept.join(file)).unwrap();
        fs_err::write(kept.join(file), &whole[..whole.len() / 2]).unwrap();
        let refused = scene
            .run_plugin("trust show --offline")
            .await
            .failure(1)
            .unwrap();
        assert!(refused.contains("BUNDLE-TRUST-054"), "{file}: {refused}");
        scene.run_plugin("trust show").await.success().unwrap();
        scene
            .run_plugin("trust show --offline")
            .await
            .success()
            .unwrap();
    }
    // With `--offline`, missing files are an error.
    fs_err::remove_dir_all(&kept).unwrap();
    let refused = scene
        .run_plugin("trust show --offline")
        .await
        .failure(1)
        .unwrap();
    assert!(refused.contains("BUNDLE-TRUST-054"), "{refused}");
    scene.repository.answer(ServerBehavior::Dead);
    let refused = scene.run_plugin("trust show").await.failure(4).unwrap();
    assert!(refused.contains("BUNDLE-TRUST-050"), "{refused}");
    scene.repository.answer(ServerBehavior::Plain);
    scene.run_plugin("trust show").await.success().unwrap();

    // The repository publishes metadata that expires after fifteen seconds. Later, this metadata
    // expires in the cache while the mirror is unreachable.
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(15);
    scene
        .repository
        .rewrite(|state| {
            state["timestamp"]["version"] = json!(3);
            state["timestamp"]["expires"] = json!(format!("{soon:.0}"));
        })
        .unwrap();
    scene.run_plugin("trust update").await.success().unwrap();
    scene.repository.answer(ServerBehavior::Dead);
    e2e::wait::until_true(
        std::time::Duration::from_secs(60),
        "the timestamp ends",
        || async { Ok(jiff::Timestamp::now() > soon) },
    )
    .await
    .unwrap();
    let refused = scene
        .run_plugin("trust show --offline")
        .await
        .failure(3)
        .unwrap();
    assert!(
        refused.contains("BUNDLE-TRUST-051") && refused.contains("the last refresh was 0 min ago"),
        "{refused}"
    );
    let refused = scene.run_plugin("trust show").await.failure(4).unwrap();
    assert!(refused.contains("BUNDLE-TRUST-050"), "{refused}");

    // The file with the trusted repository is damaged: there is no fallback.
    let file = scene
        .bench
        .folder()
        .join("home/.config/kubectl-bundle/trust.json");
    fs_err::write(&file, "{").unwrap();
    let refused = scene.run_plugin("trust show").await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-TRUST-054"), "{refused}");
    scene.run_plugin("trust reset").await.success().unwrap();
    scene.run_plugin("trust show").await.success().unwrap();
}
