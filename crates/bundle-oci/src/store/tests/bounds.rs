//! Tests of the limits of copies, and of copies by a list of images.

use super::*;

#[tokio::test]
async fn limits_apply_to_depth_number_and_size() {
    let fixture = Fixture::new().await;
    let bounds = [
        (
            GraphLimits {
                depth: 0,
                ..GraphLimits::default()
            },
            "levels of indexes",
        ),
        (
            GraphLimits {
                referrers: 0,
                ..GraphLimits::default()
            },
            "refer to each other",
        ),
        (
            GraphLimits {
                manifests: 2,
                ..GraphLimits::default()
            },
            "manifests",
        ),
        (
            GraphLimits {
                bytes: 500,
                ..GraphLimits::default()
            },
            "of manifests",
        ),
        (
            GraphLimits {
                blobs: 2,
                ..GraphLimits::default()
            },
            "blobs",
        ),
    ];
    for (bounds, what) in bounds {
        let image = LocatedImage::reference(&fixture.client, &fixture.reference())
            .await
            .unwrap();
        let selection = CopyOptions {
            bounds,
            ..CopyOptions::default()
        };
        let refused = CopyPlan::build(image, &selection).await.unwrap_err();
        assert_eq!(refused.code, codes::registry::TOO_LARGE);
        assert!(refused.message.contains(what), "{refused}");
    }
}

#[tokio::test]
async fn content_of_a_list_is_read_from_another_source() {
    let fixture = Fixture::new().await;
    let plans = [fixture.plan(&CopyOptions::default()).await];
    let text = Sources::of(&plans, &[]).unwrap().to_yaml();
    let sources = Sources::parse(text.as_bytes(), "sources.yaml").unwrap();
    let [one] = sources.artifacts.as_slice() else {
        panic!("{text}");
    };
    let source = ImageSource::registry(&fixture.client, &one.origin().unwrap());
    let image = LocatedImage::listed(source, one).await.unwrap();
    let selection = one.selection(&CopyOptions::default()).unwrap();
    let again = CopyPlan::build(image, &selection).await.unwrap();
    assert_eq!(digests(&again), digests(&plans[0]));
    let hostile = text.replace(".sig", ".exe");
    let refused = Sources::parse(hostile.as_bytes(), "sources.yaml").unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("is not a tag of the form sha256-HEX.KIND"),
        "{refused}"
    );
    let refused = Sources::parse(b"kind: Sources\n", "sources.yaml").unwrap_err();
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
}
