//! Modules of users that this drive has in memory, whole or in part.
//!
//! Who may run a module gives it, and it is named by its hash, so it does not matter who gave it. What was
//! used longest ago is dropped first.

use std::sync::{Arc, Mutex, PoisonError};

use braid_methods::{MODULE_BYTES_MAX, Module};
use braid_wire::data::ModulePart;
use braid_wire::{Reason, Refusal};

/// Bytes of whole modules, and of those that are arriving, at most.
const BYTES_MAX: usize = 4 * MODULE_BYTES_MAX;

#[derive(Debug, Default)]
pub(crate) struct Modules(Mutex<State>);

/// Both lists have what was used last at their ends.
#[derive(Debug, Default)]
struct State {
    whole: Vec<Arc<Module>>,
    arriving: Vec<Arriving>,
}

/// The beginning of a module.
#[derive(Debug)]
struct Arriving {
    hash: [u8; 32],
    bytes: Vec<u8>,
}

impl Modules {
    /// The module of this hash.
    pub(crate) fn get(&self, hash: [u8; 32]) -> Option<Arc<Module>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = state.whole.iter().position(|module| module.hash() == hash)?;
        let module = state.whole.remove(at);
        state.whole.push(Arc::clone(&module));
        Some(module)
    }

    /// Takes a part of a module.
    pub(crate) fn take(&self, part: ModulePart) -> Result<(), Refusal> {
        if self.get(part.module).is_some() {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.arriving.iter().position(|arriving| arriving.hash == part.module);
        let mut arriving = match known {
            Some(at) => state.arriving.remove(at),
            None => Arriving { hash: part.module, bytes: Vec::new() },
        };
        let from = usize::try_from(part.from).unwrap_or(usize::MAX);
        if from > arriving.bytes.len() {
            let detail = format!("the module's first {from} bytes are not here: give it from its beginning");
            return Err(Refusal::new(Reason::NoModule, detail));
        }
        // Of what another asker gives at the same time the drive may have more.
        let had = arriving.bytes.len() - from;
        arriving.bytes.extend_from_slice(part.part.get(had..).unwrap_or_default());
        if arriving.bytes.len() < usize::try_from(part.bytes).unwrap_or(usize::MAX) {
            state.arriving.push(arriving);
            drop_oldest(&mut state.arriving, |arriving| arriving.bytes.len());
            return Ok(());
        }
        match Module::new(arriving.bytes).filter(|module| module.hash() == part.module) {
            Some(module) => {
                state.whole.push(Arc::new(module));
                drop_oldest(&mut state.whole, |module| module.bytes().len());
                Ok(())
            }
            None => {
                let detail = "the module's bytes are not those of its hash: give it again from its beginning";
                Err(Refusal::new(Reason::PayloadChecksum, detail))
            }
        }
    }
}

fn drop_oldest<T>(list: &mut Vec<T>, bytes_of: impl Fn(&T) -> usize) {
    while list.iter().map(&bytes_of).sum::<usize>() > BYTES_MAX {
        list.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_wire::data::Address;

    fn part(module: &Module, bytes: u32, from: u32, part: &[u8]) -> ModulePart {
        ModulePart { at: Address::DRIVE, module: module.hash(), bytes, from, part: part.to_vec() }
    }

    #[test]
    fn a_module_arrives_in_parts_and_must_be_that_of_its_hash() {
        let modules = Modules::default();
        let module = Module::new(b"abcdef".to_vec()).expect("it is short");
        let refused = modules.take(part(&module, 6, 3, b"def")).expect_err("the beginning is missing");
        assert_eq!(refused.reason, Reason::NoModule);
        modules.take(part(&module, 6, 0, b"abc")).expect("a part");
        assert!(modules.get(module.hash()).is_none());
        // Two give it at the same time.
        modules.take(part(&module, 6, 0, b"abcd")).expect("a part");
        modules.take(part(&module, 6, 3, b"def")).expect("the rest");
        assert_eq!(modules.get(module.hash()).expect("whole").bytes(), b"abcdef");
        modules.take(part(&module, 6, 3, b"def")).expect("it is there already");

        let other = Module::new(b"ghi".to_vec()).expect("it is short");
        let refused = modules.take(part(&other, 3, 0, b"ghx")).expect_err("not its bytes");
        assert_eq!(refused.reason, Reason::PayloadChecksum);
        modules.take(part(&other, 3, 0, b"ghi")).expect("from its beginning");
        assert!(modules.get(other.hash()).is_some());
    }

    #[test]
    fn what_was_used_longest_ago_is_dropped() {
        let modules = Modules::default();
        let all: Vec<Module> =
            (0..5).map(|byte| Module::new(vec![byte; MODULE_BYTES_MAX]).expect("it fits")).collect();
        let bytes = u32::try_from(MODULE_BYTES_MAX).expect("small");
        for module in &all {
            modules.take(part(module, bytes, 0, module.bytes())).expect("whole");
            modules.get(all[0].hash()).expect("it is used");
        }
        let there: Vec<bool> = all.iter().map(|module| modules.get(module.hash()).is_some()).collect();
        assert_eq!(there, [true, false, true, true, true]);
    }
}
