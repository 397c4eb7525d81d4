//! Budget for the validation of untrusted objects against untrusted schemas: a number of steps, and
//! a deadline. Each loop over values of an object or a schema is charged, because an attacker can
//! multiply the loops: a long list of a schema is read for each item of a long list of an object.

/// Maximum number of steps of the validation of one object against one schema. Schemas with
/// alternatives multiply the steps.
pub(crate) const MAX_STEPS: u64 = 4_000_000;

/// Number of units in one step. A step needs about 0.1 µs (estimated). The steps are counted in
/// units, so that short operations are not rounded to zero.
const STEP: u64 = 64;
/// Units for each key of a map, item of a list, or name in a list of the schema.
const ITERATION: u64 = 32;
/// Units for the comparison of two scalar values.
const COMPARISON: u64 = 16;
/// Number of units after which the deadline is checked again.
const CHECK: u64 = 4096 * STEP;
/// Divisor for the units of a match. In the worst case, a match reads the complete compiled pattern
/// for each byte of the text. One unit pays for one byte of the text and 32 bytes of the compiled
/// pattern. For all matches of a validation together, the product of both is at most about half of
/// the product that the module `configuration` allows for one configuration.
const PATTERN_BYTES: u64 = 32;

/// Error if a validation needs more steps than its budget has, or if the deadline is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetExceeded;

/// Steps and time that remain for a validation.
pub(crate) struct ValidationBudget<'c> {
    /// Remaining units.
    left: u64,
    /// Units since the last check of the deadline.
    since_check: u64,
    /// Returns true if the deadline is reached.
    is_late: Option<&'c mut dyn FnMut() -> bool>,
}

impl<'c> ValidationBudget<'c> {
    /// Returns a budget with this number of steps. The validation calls `is_late` every few
    /// thousand steps, and ends if it returns true.
    pub(crate) fn new(steps: u64, is_late: &'c mut dyn FnMut() -> bool) -> Self {
        Self {
            left: steps.saturating_mul(STEP),
            since_check: 0,
            is_late: Some(is_late),
        }
    }

    /// Returns a budget with this number of steps and without a deadline.
    pub(super) fn without_deadline(steps: u64) -> Self {
        Self {
            left: steps.saturating_mul(STEP),
            since_check: 0,
            is_late: None,
        }
    }

    /// Returns a budget that is never exceeded.
    pub(super) fn unlimited() -> Self {
        Self::without_deadline(u64::MAX)
    }

    /// Charges steps.
    pub(super) fn charge_steps(&mut self, steps: usize) -> Result<(), BudgetExceeded> {
        self.charge((steps as u64).saturating_mul(STEP))
    }

    /// Charges one iteration of a loop over keys, with a lookup of `key`, or over texts.
    pub(super) fn charge_iteration(&mut self, key: &str) -> Result<(), BudgetExceeded> {
        self.charge(ITERATION + key.len() as u64)
    }

    /// Charges the comparison of two scalar values.
    pub(super) fn charge_comparison(&mut self) -> Result<(), BudgetExceeded> {
        self.charge(COMPARISON)
    }

    /// Charges a fast operation on this number of bytes.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.charge(bytes as u64)
    }

    /// Charges the match of a text of this number of bytes with a pattern. `size` is the size of
    /// the compiled pattern in bytes.
    pub(super) fn charge_match(&mut self, bytes: usize, size: usize) -> Result<(), BudgetExceeded> {
        let units = (size as u64).div_ceil(PATTERN_BYTES);
        self.charge((bytes as u64).saturating_add(1).saturating_mul(units))
    }

    /// Subtracts units, and checks the deadline if it was not checked for [`CHECK`] units. If too
    /// few units remain, all later calls with units return an error too.
    fn charge(&mut self, units: u64) -> Result<(), BudgetExceeded> {
        let Some(left) = self.left.checked_sub(units) else {
            self.left = 0;
            return Err(BudgetExceeded);
        };
        self.left = left;
        self.since_check = self.since_check.saturating_add(units);
        if self.since_check < CHECK {
            return Ok(());
        }
        self.since_check = 0;
        if self.is_late.as_mut().is_some_and(|is_late| is_late()) {
            self.left = 0;
            return Err(BudgetExceeded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_is_checked_every_few_thousand_steps() {
        let mut checks = 0;
        let mut is_late = || {
            checks += 1;
            checks == 3
        };
        let mut budget = ValidationBudget::new(MAX_STEPS, &mut is_late);
        let steps = (0..20_000).take_while(|_| budget.charge_steps(1).is_ok());
        assert_eq!(steps.count(), 3 * 4096 - 1);
        assert_eq!(budget.charge_comparison(), Err(BudgetExceeded));
        assert_eq!(checks, 3);
        // A long operation is charged at once, so the deadline is checked before this operation.
        let mut is_late = || true;
        let mut budget = ValidationBudget::new(MAX_STEPS, &mut is_late);
        assert_eq!(budget.charge_match(1 << 10, 64 << 10), Err(BudgetExceeded));
    }

    #[test]
    fn short_operations_are_charged() {
        let mut budget = ValidationBudget::without_deadline(10);
        let count = (0..1000).take_while(|_| budget.charge_comparison().is_ok());
        assert_eq!(count.count(), 40);
        assert_eq!(budget.charge_steps(1), Err(BudgetExceeded));
        let mut budget = ValidationBudget::unlimited();
        assert_eq!(budget.charge_steps(usize::MAX / 128), Ok(()));
    }

    #[test]
    fn cost_of_a_match_is_the_product_of_text_and_pattern() {
        let mut budget = ValidationBudget::without_deadline(MAX_STEPS);
        assert_eq!(budget.charge_match(1 << 20, 2 << 10), Ok(()));
        assert_eq!(budget.charge_match(1 << 20, 64 << 10), Err(BudgetExceeded));
    }
}
