//! The arguments of a method: named texts, as they are typed and as they travel.

/// One argument of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Name, as the method documents it.
    pub name: String,
    /// Value, as a text.
    pub value: String,
}

/// The arguments of a method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arguments(pub Vec<Argument>);

/// An argument that a method does not take, or cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// There is no such method.
    #[error("there is no method {name:?}; there are: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The method does not take such an argument.
    #[error("{method} takes no argument {name:?}; it takes: {takes}")]
    Name {
        /// The method's name.
        method: &'static str,
        /// The argument's name.
        name: String,
        /// The arguments that it takes.
        takes: String,
    },
    /// An argument is named twice.
    #[error("the argument {name:?} is given twice")]
    Twice {
        /// The argument's name.
        name: String,
    },
    /// The method needs this argument.
    #[error("{method} needs the argument {name}=...")]
    Missing {
        /// The method's name.
        method: &'static str,
        /// The argument's name.
        name: &'static str,
    },
    /// The value of an argument cannot be used.
    #[error("{name}={value:?}: {why}")]
    Value {
        /// The argument's name.
        name: &'static str,
        /// The argument's value.
        value: String,
        /// The fault, and what is allowed.
        why: String,
    },
    /// The arguments of a method are too long.
    #[error("the arguments have {bytes} bytes; a method's have at most {max}")]
    TooLong {
        /// Bytes of all names and values.
        bytes: usize,
        /// The bound in bytes.
        max: usize,
    },
}

/// Bytes of all arguments of a method at most: they go with each request to a drive.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 256 << 10;

impl Arguments {
    /// The same arguments and one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Arguments {
        self.0.push(Argument { name: name.to_owned(), value: value.into() });
        self
    }

    /// The value of the argument of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|argument| argument.name == name).map(|argument| argument.value.as_str())
    }

    /// Refuses arguments that the method does not take, and those that are named twice.
    pub fn check(&self, method: &'static str, takes: &[&'static str]) -> Result<(), ArgumentsError> {
        self.check_among(method, takes, &takes.join(", "))
    }

    /// The same for a method of another crate, whose arguments are `shown` to people.
    pub fn check_among(
        &self,
        method: &'static str,
        takes: &[&'static str],
        shown: &str,
    ) -> Result<(), ArgumentsError> {
        let foreign = self.0.iter().find(|argument| !takes.contains(&argument.name.as_str()));
        if let Some(Argument { name, .. }) = foreign {
            return Err(ArgumentsError::Name { method, name: name.clone(), takes: shown.to_owned() });
        }
        self.check_form()
    }

    /// Refuses arguments that are too long together, and those that are named twice.
    pub(crate) fn check_form(&self) -> Result<(), ArgumentsError> {
        let bytes = self.0.iter().map(|argument| argument.name.len() + argument.value.len()).sum();
        if bytes > ARGUMENT_BYTES_MAX {
            return Err(ArgumentsError::TooLong { bytes, max: ARGUMENT_BYTES_MAX });
        }
        for (at, argument) in self.0.iter().enumerate() {
            let name = argument.name.clone();
            if self.0[..at].iter().any(|earlier| earlier.name == name) {
                return Err(ArgumentsError::Twice { name });
            }
        }
        Ok(())
    }

    /// The value that a method cannot do without.
    pub fn need(&self, method: &'static str, name: &'static str) -> Result<&str, ArgumentsError> {
        self.get(name).ok_or(ArgumentsError::Missing { method, name })
    }

    /// A number of at least `min` and at most `max`; `default` if there is no such argument.
    pub fn number(
        &self,
        name: &'static str,
        default: u64,
        min: u64,
        max: u64,
    ) -> Result<u64, ArgumentsError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| wrong(name, value, format!("give a whole number from {min} to {max}")))
    }

    /// A yes or a no; no if there is no such argument.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, ArgumentsError> {
        match self.get(name) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(value) => Err(wrong(name, value, "give yes or no")),
        }
    }
}

/// The error for a value that cannot be used.
pub(crate) fn wrong(name: &'static str, value: &str, why: impl Into<String>) -> ArgumentsError {
    ArgumentsError::Value { name, value: value.to_owned(), why: why.into() }
}
