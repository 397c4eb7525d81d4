//! Short form of `cargo xtask soak kills`.

use std::time::Duration;

use e2e::soak::{self, SoakMix, SoakOptions};

#[tokio::test(flavor = "multi_thread")]
async fn packages_converge_after_kills_during_installations_upgrades_rollbacks_and_removals() {
    let options = SoakOptions {
        mix: SoakMix::Kills,
        seed: 20_261_128,
        duration: Duration::from_secs(20),
        min_kills: 5,
        round: Duration::from_secs(10),
        packages: 2,
    };
    let report = soak::run(options, &mut |line| println!("{line}"))
        .await
        .unwrap();
    assert!(report.upgrades > 0 && report.removals > 0, "{report}");
}
