//! An amount of the window, in jobs and bytes.

/// An amount of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amount {
    pub(super) jobs: usize,
    pub(super) bytes: usize,
}

impl Amount {
    /// Whether another job of this size fits below the bound. A job larger than the bound goes
    /// alone.
    pub(super) fn fits(self, bytes: usize, bound: Amount) -> bool {
        self.jobs == 0
            || (self.jobs < bound.jobs && self.bytes.saturating_add(bytes) <= bound.bytes)
    }

    pub(super) fn less(self, less: Amount) -> Amount {
        Amount {
            jobs: self.jobs.saturating_sub(less.jobs),
            bytes: self.bytes.saturating_sub(less.bytes),
        }
    }

    pub(super) fn part(self, of: usize) -> Amount {
        Amount { jobs: self.jobs / of, bytes: self.bytes / of }
    }

    /// Whether at least a quarter of the bound is free.
    pub(super) fn leaves_quarter(self, bound: Amount) -> bool {
        let most = bound.less(bound.part(4));
        self.jobs <= most.jobs && self.bytes <= most.bytes
    }

    pub(super) fn add(&mut self, more: Amount) {
        self.jobs += more.jobs;
        self.bytes += more.bytes;
    }

    pub(super) fn sub(&mut self, less: Amount) {
        self.jobs -= less.jobs;
        self.bytes -= less.bytes;
    }
}
