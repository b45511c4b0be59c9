//! What the kernel was doing, by the functions of a call chain.
//!
//! The classes are those of "Understanding Host Network Stack Overheads" (SIGCOMM 2021), section 2.2; files
//! and pipes are added for programs that use them. The innermost function that a rule knows decides; one that
//! no rule knows (a helper such as `memcpy`, a module's own) counts as what called it.
//!
//! Unlocking is such a helper. The sampling clock is an interrupt, so time with interrupts off is seen when
//! they are on again: in `_raw_spin_unlock_irqrestore`. It belongs to whoever held the lock.

use serde::{Deserialize, Serialize};

/// What CPU time went into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// User mode.
    Program,
    /// Entering and leaving the kernel, finding the descriptor, checking arguments.
    Calls,
    /// Between the program and the kernel.
    Copy,
    /// TCP, UDP, IP, routing, netfilter.
    Protocol,
    /// Queueing disciplines, interfaces, GRO, GSO, drivers, the softirq's own loop.
    Device,
    /// Packets' buffers, pages, page faults.
    Memory,
    /// Taking locks.
    Locks,
    /// Sleeping, waking, switching, timers.
    Scheduling,
    /// File systems, disks, pipes, Unix sockets.
    Files,
    /// No rule knows any function of the chain.
    Unknown,
}

impl Class {
    /// All, in the order in which a sender's data meets them.
    pub const ALL: [Class; 10] = [
        Class::Program,
        Class::Calls,
        Class::Copy,
        Class::Protocol,
        Class::Device,
        Class::Memory,
        Class::Locks,
        Class::Scheduling,
        Class::Files,
        Class::Unknown,
    ];

    /// As ledgers call it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Program => "the program itself",
            Class::Calls => "system calls",
            Class::Copy => "data copy",
            Class::Protocol => "TCP/IP",
            Class::Device => "netdevice",
            Class::Memory => "skb and memory",
            Class::Locks => "locks",
            Class::Scheduling => "scheduling",
            Class::Files => "files and pipes",
            Class::Unknown => "not attributed",
        }
    }
}

/// Beginnings of functions' names without leading underscores; the longest that fits decides.
const RULES: [(Class, &str); 9] = [
    (
        Class::Calls,
        "entry_SYSCALL do_syscall syscall_ x64_sys arm64_sys sys_ ksys_ vfs_read vfs_write \
         new_sync do_iter sock_sendmsg sock_recvmsg sock_read_iter sock_write_iter sock_poll \
         sockfd_ sock_splice security_ apparmor_ aa_ selinux_ cap_ fdget fget fput import_ \
         rw_verify_area do_select core_sys_select poll_ select_ do_sys_poll do_pselect \
         do_poll ep_ do_epoll eventpoll audit_ seccomp exit_to_user ptrace fsnotify \
         copy_process kernel_clone do_exit do_group_exit execve do_execve exec_ bprm_ \
         begin_new_exec load_elf wait4 do_wait kernel_wait get_signal do_signal \
         arch_do_signal sigprocmask set_user_sig ret_from_fork fpregs_ restore_fpregs",
    ),
    (
        Class::Copy,
        "copy_from_iter copy_to_iter copy_page_from copy_page_to copyin copyout rep_movs \
         copy_user copy_from_user copy_to_user raw_copy skb_datagram_iter skb_copy_datagram \
         skb_copy_bits skb_do_copy_data simple_copy_to_iter csum_and_copy csum_partial \
         iov_iter check_object_size check_heap_object usercopy fault_in_ skb_splice_from \
         skb_zerocopy",
    ),
    (
        Class::Protocol,
        "tcp udp ip_ ip6 ipv6 ipv4 inet fib fib6 icmp nf_ nft_ ipt_ xt_ bictcp cubictcp bbr_ \
         rt_dst rt_cache rt6_ dst_ neigh_ arp_ ndisc_ sk_stream sk_filter sk_backlog_rcv \
         sk_setup_caps sk_reset_timer sk_dst sk_free sk_clone raw_sendmsg raw_recvmsg tls_ \
         mptcp_ sctp_ xfrm_",
    ),
    (
        Class::Device,
        "dev_ netdev_ netif_ napi_ net_rx_action net_tx_action process_backlog \
         enqueue_to_backlog veth_ loopback_ gro_ skb_gro dev_gro skb_segment skb_gso \
         skb_mac_gso validate_xmit sch_ pfifo fq_ qdisc_ tcf_ tc_ htb_ tbf_ netem_ eth_ \
         get_rps_cpu rps_ skb_tx_hash br_ vlan_ macvlan ipvlan tun_ tap_ virtnet_ virtqueue \
         vring ixgbe i40e ice_ mlx ena_ gve_ e1000 igb_ bnxt packet_ tpacket_ xdp_ \
         generic_xdp bpf_prog_ bpf_xdp wg_ vxlan geneve handle_softirqs do_softirq softirq \
         irq_exit run_ksoftirqd skb_network_protocol skb_crc32c passthru_features \
         harmonize_features sk_busy_loop busy_poll",
    ),
    (
        Class::Memory,
        "skb_ alloc_skb build_skb kfree_skb consume_skb napi_build_skb napi_alloc \
         napi_consume napi_skb_cache napi_pp sock_rfree sock_wfree sock_wmalloc sock_kmalloc \
         sock_alloc_send sock_omalloc sk_mem sk_page_frag sk_forced_mem tcp_wfree kmem_cache \
         kmalloc kfree kvfree kvmalloc slab_ get_partial get_from_partial put_cpu_partial \
         alloc_pages alloc_frozen free_pages free_frozen free_unref free_one_page \
         free_pcppages get_page put_page rmqueue page_frag page_pool folio page_counter \
         mod_memcg mod_lruvec mod_node memcg_ mem_cgroup try_charge refill_ obj_cgroup drain_ \
         uncharge charge_ consume_stock clear_page handle_mm_fault do_anonymous do_fault \
         do_user_addr exc_page_fault asm_exc_page_fault lock_vma lock_mm lru_ mmap_ do_mmap \
         do_munmap vm_ vma_ unmap_ zap_ tlb_ flush_tlb pte_ free_pgtables copy_page_range \
         wp_page do_wp madvise exit_mmap get_any_page mas_ mtree_ zone_watermark",
    ),
    (
        Class::Locks,
        "raw_spin_lock raw_spin_trylock raw_write_lock raw_read_lock queued_spin \
         native_queued_spin pv_queued_spin queued_write queued_read mutex_ rwsem down_ \
         up_read up_write lock_sock release_sock rt_mutex rt_spin osq_ local_bh_",
    ),
    (
        Class::Scheduling,
        "schedule sched_ try_to_wake ttwu default_wake wake_up woken_wake autoremove_wake \
         pollwake ep_poll_callback ep_autoremove wait_woken finish_task_switch pick_next \
         pick_task pick_eevdf enqueue_task dequeue_task enqueue_entity dequeue_entit \
         enqueue_pushable update_curr update_load update_rq update_se update_cfs update_min \
         set_next_ put_prev select_task_rq select_idle context_switch switch_to switch_mm \
         switch_fpu prepare_task check_preempt wakeup_preempt place_entity reweight \
         avg_vruntime psi_ cpuacct resched preempt_schedule do_nanosleep hrtimer_ tick_ \
         timer_ run_timer update_process_times futex do_futex prepare_to_wait finish_wait \
         add_wait_queue remove_wait_queue kthread worker_thread process_one_work queue_work \
         smp_call flush_smp generic_smp native_smp x2apic_ kvm_send_ipi native_send_call \
         sysvec_ asm_sysvec asm_common_interrupt common_interrupt handle_irq sk_wait_data \
         sk_stream_wait sock_def_ io_schedule load_balance sched_balance newidle migrate_task \
         do_idle cpu_startup default_idle native_safe_halt pv_native_safe_halt cpuidle \
         acpi_idle mwait yield",
    ),
    (
        Class::Files,
        "pipe_ anon_pipe fifo_ ext4_ xfs_ btrfs_ f2fs_ ovl_ shmem_ simple_write generic_file \
         generic_perform_write filemap_ pagecache page_cache iomap_ blk_ bio_ submit_bio \
         nvme_ virtblk scsi_ jbd2_ splice do_splice read_pages readahead writeback \
         balance_dirty path_ link_path lookup_ do_filp d_lookup dput proc_ seq_ unix_ block_ \
         mpage_ do_sys_open",
    ),
    // Nothing is the program's own once it is in the kernel; the row keeps the table complete.
    (Class::Program, ""),
];

/// The class of a function; `None` for a helper, which counts as its caller.
pub(super) fn of_function(name: &str) -> Option<Class> {
    let name = name.trim_start_matches('_');
    let all = RULES.iter().flat_map(|(class, rules)| {
        rules.split_ascii_whitespace().map(|beginning| (*class, beginning))
    });
    let fit = all.filter(|(_, beginning)| name.starts_with(beginning));
    fit.max_by_key(|(_, beginning)| beginning.len()).map(|(class, _)| class)
}

/// What a function says about the context of everything that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// It runs softirqs.
    Softirq,
    /// It runs the network's softirqs.
    NetworkSoftirq,
    /// It is the idle loop.
    Idle,
    /// It is the kernel's own thread for softirqs.
    SoftirqThread,
    /// It switches interrupts on again.
    Unlock,
}

/// See [`Context`].
pub(super) fn context(name: &str) -> Option<Context> {
    match name.trim_start_matches('_') {
        "handle_softirqs" | "do_softirq" => Some(Context::Softirq),
        "net_rx_action" | "net_tx_action" => Some(Context::NetworkSoftirq),
        "do_idle" | "cpu_startup_entry" => Some(Context::Idle),
        "run_ksoftirqd" => Some(Context::SoftirqThread),
        name if name.starts_with("raw_spin_unlock") => Some(Context::Unlock),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Chains as they were recorded on Linux 6.18, innermost first.
    const RECORDED: [(Class, &str); 14] = [
        (
            Class::Copy,
            "_copy_to_iter __skb_datagram_iter skb_copy_datagram_iter tcp_recvmsg_locked",
        ),
        (
            Class::Copy,
            "rep_movs_alternative _copy_from_iter tcp_sendmsg_locked tcp_sendmsg sock_write_iter",
        ),
        (
            Class::Protocol,
            "__tcp_transmit_skb tcp_write_xmit __tcp_push_pending_frames tcp_rcv_established",
        ),
        (
            Class::Protocol,
            "read_tsc ktime_get tcp_mstamp_refresh tcp_write_xmit tcp_sendmsg_locked",
        ),
        (
            Class::Scheduling,
            "_raw_spin_unlock_irqrestore sock_def_readable tcp_data_queue tcp_rcv_established",
        ),
        (Class::Scheduling, "_raw_spin_unlock_irqrestore try_to_wake_up woken_wake_function"),
        (
            Class::Scheduling,
            "finish_task_switch.isra.0 __schedule schedule schedule_timeout wait_woken",
        ),
        (Class::Calls, "read_tsc ktime_get_ts64 poll_select_finish do_pselect.constprop.0"),
        (
            Class::Locks,
            "__pv_queued_spin_lock_slowpath _raw_spin_lock_bh lock_sock_nested tcp_recvmsg",
        ),
        (Class::Device, "handle_softirqs do_softirq.part.0 __local_bh_enable_ip __dev_queue_xmit"),
        (
            Class::Device,
            "veth_xmit dev_hard_start_xmit __dev_queue_xmit ip_finish_output2 ip_output",
        ),
        (Class::Memory, "memset __alloc_skb tcp_stream_alloc_skb tcp_sendmsg_locked tcp_sendmsg"),
        (Class::Memory, "kmem_cache_free kfree_skbmem tcp_ack tcp_rcv_established tcp_v4_do_rcv"),
        (Class::Files, "anon_pipe_write vfs_write ksys_write do_syscall_64"),
    ];

    #[test]
    fn recorded_chains_are_classified() {
        for (right, chain) in RECORDED {
            let found = chain.split(' ').find_map(of_function);
            assert_eq!(found, Some(right), "{chain}");
        }
    }

    #[test]
    fn no_beginning_is_in_two_classes() {
        let mut all = BTreeSet::new();
        for rule in RULES.iter().flat_map(|(_, rules)| rules.split_ascii_whitespace()) {
            assert!(all.insert(rule), "`{rule}` is there twice");
        }
    }
}
