//! Kinds of responses that are reduced, and rules for their objects.

/// Location of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::responses) enum ResponseKind {
    /// The response is the object.
    Object,
    /// The objects are in `items`.
    List,
    /// Each line has an object in `object`.
    Watch,
}

impl ResponseKind {
    /// Returns the nesting depth of an object: the number of JSON maps and lists that contain the
    /// object.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Object => 0,
            Self::Watch => 1,
            Self::List => 2,
        }
    }
}

/// Rules for the objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::responses) struct ObjectRules {
    /// Largest memory of one object as text and as a tree in bytes, by the estimate of
    /// [`super::Reducer::weight`].
    pub(in crate::responses) limit: usize,
    /// True if `fieldsV1` of other managers is retained.
    pub(in crate::responses) keeps_fields: bool,
    /// True if `data` and `binaryData` of the object are retained.
    pub(in crate::responses) keeps_data: bool,
    /// True if an invalid object is replaced like an object that is too large. Output is then
    /// available only after the end of each object.
    pub(in crate::responses) is_checked: bool,
}

impl ObjectRules {
    /// Rules for a response whose reader has its own size limit and parser. The reducer checks only
    /// timestamps.
    pub(in crate::responses) const TIMES_ONLY: Self = Self {
        limit: usize::MAX,
        keeps_fields: true,
        keeps_data: true,
        is_checked: false,
    };
}
