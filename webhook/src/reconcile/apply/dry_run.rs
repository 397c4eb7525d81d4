//! Dry runs of applies as the installing ServiceAccount. These dry runs are not compared with dry
//! runs of the requesters, which the module `comparison` sends.

use super::{Applied, ApplyError, Preparer, Target, request};
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;

/// Maximum number of dry runs for an object that keeps changing.
const MAX_DRY_RUNS: u32 = 5;

impl Preparer {
    /// As the installing ServiceAccount, sends a dry run of the apply to the object with this uid.
    /// Retries conflicts a few times.
    pub(in crate::reconcile) async fn dry_run(
        &self,
        item: &PreparedObject,
        uid: String,
    ) -> Result<Applied, ApplyError> {
        let mut tries = 1;
        loop {
            let prepared = self.prepare(item, Target::Uid(uid.clone())).await?;
            match request::send(&self.client, &prepared, true).await {
                Err(error)
                    if prepared.is_of_a_version()
                        && tries < MAX_DRY_RUNS
                        && object::is_conflict(&error) =>
                {
                    tries += 1;
                }
                answer => return answer.map_err(ApplyError::Api),
            }
        }
    }

    /// As the installing ServiceAccount, sends a dry run that creates `item`. Fails if an object
    /// with this name exists.
    pub(in crate::reconcile) async fn dry_run_creation(
        &self,
        item: &PreparedObject,
    ) -> Result<(), ApplyError> {
        let prepared = self.prepare(item, Target::Absent).await?;
        let answer = request::send(&self.client, &prepared, true).await;
        answer.map(drop).map_err(ApplyError::Api)
    }
}
