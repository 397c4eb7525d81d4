//! The kinds of answers that are reduced, and the treatment of their objects.

/// The place of objects in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::answers) enum AnswerKind {
    /// The answer is the object.
    Object,
    /// Objects are in `items`.
    List,
    /// Each line has one in `object`.
    Watch,
}

impl AnswerKind {
    /// The number of objects and lists around an object.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Object => 0,
            Self::Watch => 1,
            Self::List => 2,
        }
    }
}

/// The treatment of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::answers) struct ObjectRules {
    /// The most that one may take as text and as a tree, by the estimate of [`super::Reducer::weight`], in bytes.
    pub(in crate::answers) limit: usize,
    /// True if `fieldsV1` of other managers is kept.
    pub(in crate::answers) keeps_fields: bool,
    /// True if an object that does not parse counts as too large. The answer is then taken only once its objects have ended.
    pub(in crate::answers) is_checked: bool,
}

impl ObjectRules {
    /// The rules of an answer that somebody else limits and parses: only its times are checked.
    pub(in crate::answers) const TIMES_ONLY: Self = Self {
        limit: usize::MAX,
        keeps_fields: true,
        is_checked: false,
    };
}
