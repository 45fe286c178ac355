//! Address spaces of processes.

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::Object;

#[cfg(target_arch = "x86_64")]
pub(crate) use framehop::x86_64::{CacheX86_64 as Cache, UnwinderX86_64 as Unwinder};

#[cfg(target_arch = "aarch64")]
pub(crate) use framehop::aarch64::{CacheAarch64 as Cache, UnwinderAarch64 as Unwinder};

/// Maximum mappings per process; the kernel's default limit.
const MAPPINGS_MAX: usize = 65_536;

/// A mapping of code.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) end: u64,
    /// Number of its object.
    pub(crate) object: u32,
    /// Difference between addresses in memory and in the object.
    pub(crate) bias: u64,
}

/// The executable mappings of a process.
#[derive(Clone)]
pub(crate) struct Space {
    mappings: BTreeMap<u64, Mapping>,
    unwinder: Unwinder<Arc<[u8]>>,
}

impl Default for Space {
    fn default() -> Self {
        Self { mappings: BTreeMap::new(), unwinder: Unwinder::new() }
    }
}

impl Space {
    /// Adds a mapping, which replaces previous ones in its range.
    pub(crate) fn map(&mut self, start: u64, bytes: u64, offset: u64, number: u32, object: &Object) {
        let end = start.saturating_add(bytes);
        let below = self.mappings.range(..end).rev().take_while(|(_, mapping)| mapping.end > start);
        let covered: Vec<u64> = below.map(|(&at, _)| at).collect();
        for at in covered {
            self.unwinder.remove_module(at);
            let Some(mut old) = self.mappings.remove(&at) else { continue };
            // Linkers do not produce partially replaced code: the remaining part has no unwind information.
            let rest = old.clone();
            if at < start {
                old.end = start;
                self.mappings.insert(at, old);
            }
            if rest.end > end {
                self.mappings.insert(end, rest);
            }
        }
        if self.mappings.len() >= MAPPINGS_MAX || end <= start {
            return;
        }
        // Without segments, object addresses equal memory addresses.
        let bias = object.bias(start, offset).unwrap_or(0);
        self.mappings.insert(start, Mapping { end, object: number, bias });
        let Some((eh_range, eh_frame)) = &object.eh_frame else { return };
        let header = object.eh_frame_hdr.as_ref();
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(eh_range.clone()),
            eh_frame: Some(eh_frame.clone()),
            eh_frame_hdr_svma: header.map(|(range, _)| range.clone()),
            eh_frame_hdr: header.map(|(_, bytes)| bytes.clone()),
            ..ExplicitModuleSectionInfo::default()
        };
        self.unwinder.add_module(Module::new(object.name.clone(), start..end, bias, sections));
    }

    /// The mapping at an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Mapping> {
        self.mappings.range(..=address).next_back().map(|(_, mapping)| mapping).filter(|mapping| mapping.end > address)
    }

    pub(crate) fn unwinder(&self) -> &Unwinder<Arc<[u8]>> {
        &self.unwinder
    }
}
