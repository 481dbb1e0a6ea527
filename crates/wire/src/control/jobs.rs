//! The manager's background work, as `braid status --jobs` lists it.

record! {
    /// Lists the manager's background jobs.
    pub struct Jobs {}
}

record! {
    /// A background job: work that is done in rounds.
    pub struct JobRow {
        /// The job's name: one or two words, the same in all releases.
        name: String,
        /// The job's purpose, a sentence for people.
        about: String,
        /// True while a round is running.
        running: bool,
        /// Number of rounds that have ended since the manager's start.
        rounds: u64,
        /// Duration of the last round that has ended, in milliseconds.
        took_ms: u64,
        /// Time since the last change, in milliseconds: since the round began if one is running, else since
        /// the last one ended.
        since_ms: u64,
        /// Time until the next round begins, in milliseconds, if nothing wakes the job before; 0 while a
        /// round is running; above 2^62: there is none, as the job is done.
        next_ms: u64,
        /// Amount of the present or last piece of work that is done; in `unit`.
        done: u64,
        /// Amount of that work in all; 0: it is not known.
        total: u64,
        /// Unit of `done` and `total`, in the plural; empty: nothing is counted.
        unit: String,
        /// Time since that work began, in milliseconds; 0: nothing of it is done yet.
        work_ms: u64,
        /// Number of rounds that have failed in a row. The pause before the next round rises with it.
        failures: u64,
        /// The last error, for people; empty: there was none since the start.
        error: String,
        /// Time since that error, in milliseconds.
        error_ms: u64,
    }
}

record! {
    /// The answer to [`Jobs`].
    pub struct JobsReply {
        /// All jobs, by name.
        jobs: Vec<JobRow>,
    }
}
