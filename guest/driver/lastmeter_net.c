// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A driver for virtio-net that receives by the mode one tells it, to show what each does under overload.
 *
 *   mode       after an interrupt
 *   interrupt  its handler takes all there is, into the queue of the protocol's softirq; no limit (as before NAPI)
 *   napi       NAPI; with napi_defer_hard_irqs and gro_flush_timeout of the interface, deferred
 *   backoff    up to `quota` packets, then none for a period that grows while buffers are short (E-104)
 *   poll       there is none: a thread looks all the time, `quota` packets at once
 *   timed      there is none: a thread looks each `period` microseconds
 *
 * A received packet lies in a page of the driver's own, and the page counts as free again once the stack or the
 * application has let go of it. Without a free page the ring runs dry and the device drops at no cost to the guest.
 *
 * The parameters `interrupts`, `polls`, `packets`, `handler_ns` (in the handlers of `interrupt`), `receive_ns` (in
 * polls, the stack included) and `period_now` (us) can be read while it runs.
 *
 * Deviations from the thesis: backoff takes its packets in a softirq and not in the handler.
 */
#include <linux/etherdevice.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>

static char *mode = "napi";
module_param(mode, charp, 0444);
static unsigned int buffers = 4096; /* pages of 4 KB; the protocol's queues hold 2000 at most */
module_param(buffers, uint, 0444);
static unsigned int quota = 64; /* packets */
module_param(quota, uint, 0444);
static unsigned int period = 500; /* us; of backoff, the shortest */
module_param(period, uint, 0444);
static unsigned int period_max = 10000; /* us, of backoff */
module_param(period_max, uint, 0444);
static unsigned int host_buffers = 128; /* of backoff: a quarter of them is to be free */
module_param(host_buffers, uint, 0444);

static ulong interrupts, polls, packets, handler_ns, receive_ns, period_now;
module_param(interrupts, ulong, 0444);
module_param(polls, ulong, 0444);
module_param(packets, ulong, 0444);
module_param(handler_ns, ulong, 0444);
module_param(receive_ns, ulong, 0444);
module_param(period_now, ulong, 0444);

enum mode { INTERRUPT, NAPI, BACKOFF, POLL, TIMED, MODES };
static const char *const names[MODES] = { "interrupt", "napi", "backoff", "poll", "timed" };

#define BUFFERS_MAX 65536u
/* The header that comes before each frame since virtio 1.0. */
#define HEADER sizeof(struct virtio_net_hdr_v1)
#define FRAME_MAX 1514
/* Frames between two calls of the device. */
#define KICK 16
/* Nanoseconds until a ring without free pages is looked at again. */
#define RESCUE 1000000

struct guest_net {
	struct virtio_device *vdev;
	struct net_device *dev;
	struct virtqueue *rx, *tx;
	enum mode mode;
	struct napi_struct napi;
	struct hrtimer timer, rescue;
	struct task_struct *thread;
	spinlock_t rx_lock; /* of `interrupt`, whose ring is filled by its timer, too */
	spinlock_t tx_lock;
	struct page **pages;
	unsigned int next; /* page to be tried */
	bool open;
};

/* Nobody else holds it. */
static bool is_free(struct page *page)
{
	return page_ref_count(page) == 1;
}

/* Gives the device all free pages that fit its ring, in their order. */
static void refill(struct guest_net *net)
{
	unsigned int given = 0;

	while (net->rx->num_free) {
		struct page *page = net->pages[net->next];
		struct scatterlist sg;

		if (!is_free(page))
			break;
		/* The device's. */
		get_page(page);
		sg_init_one(&sg, page_address(page) + NET_SKB_PAD, HEADER + FRAME_MAX);
		if (virtqueue_add_inbuf(net->rx, &sg, 1, page, GFP_ATOMIC) < 0) {
			put_page(page);
			break;
		}
		net->next = (net->next + 1) % buffers;
		if (++given % KICK == 0)
			virtqueue_kick(net->rx);
	}
	if (given % KICK)
		virtqueue_kick(net->rx);
	/* An empty ring causes no interrupt that would fill it. */
	if (net->rx->num_free && net->open && !hrtimer_active(&net->rescue))
		hrtimer_start(&net->rescue, ns_to_ktime(RESCUE), HRTIMER_MODE_REL);
}

/* Whether fewer than a quarter of the host's buffers are free. */
static bool short_of_buffers(struct guest_net *net)
{
	unsigned int i, at = net->next;

	for (i = 0; i < host_buffers / 4; i++, at = (at + 1) % buffers)
		if (!is_free(net->pages[at]))
			return true;
	return false;
}

/* The next packet, or none. After a bad one the ring may hold others, which would cause no interrupt. */
static struct sk_buff *take(struct guest_net *net)
{
	unsigned int len;
	struct page *page;
	struct sk_buff *skb;

	for (;;) {
		page = virtqueue_get_buf(net->rx, &len);
		if (!page)
			return NULL;
		/* The page's reference of the device becomes the packet's. */
		skb = build_skb(page_address(page), PAGE_SIZE);
		if (skb && len >= HEADER + ETH_HLEN && len <= HEADER + FRAME_MAX)
			break;
		net->dev->stats.rx_errors++;
		if (skb)
			kfree_skb(skb);
		else
			put_page(page);
	}
	skb_reserve(skb, NET_SKB_PAD + HEADER);
	skb_put(skb, len - HEADER);
	skb->protocol = eth_type_trans(skb, net->dev);
	net->dev->stats.rx_packets++;
	net->dev->stats.rx_bytes += len - HEADER;
	packets++;
	return skb;
}

/* Takes up to `most` packets into the stack, in a softirq or with softirqs off. */
static int receive(struct guest_net *net, int most)
{
	u64 from = ktime_get_ns();
	struct sk_buff *skb;
	int done = 0;

	polls++;
	while (done < most && (skb = take(net))) {
		if (net->mode == NAPI)
			napi_gro_receive(&net->napi, skb);
		else
			netif_receive_skb(skb);
		done++;
		if (done % KICK == 0)
			refill(net);
	}
	refill(net);
	receive_ns += ktime_get_ns() - from;
	return done;
}

static int poll_napi(struct guest_net *net, int budget)
{
	int done = receive(net, budget);

	if (done < budget) {
		unsigned int seen = virtqueue_enable_cb_prepare(net->rx);

		if (napi_complete_done(&net->napi, done)) {
			if (unlikely(virtqueue_poll(net->rx, seen)) && napi_schedule_prep(&net->napi)) {
				virtqueue_disable_cb(net->rx);
				__napi_schedule(&net->napi);
			}
		} else {
			virtqueue_disable_cb(net->rx);
		}
	}
	return done;
}

/* Enables interrupts, or begins again if something came meanwhile. */
static void listen(struct guest_net *net)
{
	if (!virtqueue_enable_cb(net->rx) && napi_schedule_prep(&net->napi)) {
		virtqueue_disable_cb(net->rx);
		__napi_schedule(&net->napi);
	}
}

static int poll_backoff(struct guest_net *net, int budget)
{
	int done = receive(net, min_t(int, quota, budget - 1));

	if (short_of_buffers(net))
		period_now = period_now ? min(period_now * 3 / 2, (ulong)period_max) : period;
	else
		period_now = period_now * 4 / 5;
	if (period_now < period)
		period_now = 0;
	if (napi_complete_done(&net->napi, done)) {
		if (period_now)
			hrtimer_start(&net->timer, ns_to_ktime(1000 * (u64)period_now), HRTIMER_MODE_REL);
		else
			listen(net);
	}
	return done;
}

static int poll(struct napi_struct *napi, int budget)
{
	struct guest_net *net = container_of(napi, struct guest_net, napi);

	if (!budget)
		return 0;
	return net->mode == NAPI ? poll_napi(net, budget) : poll_backoff(net, budget);
}

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct guest_net *net = container_of(timer, struct guest_net, timer);

	if (net->open)
		listen(net);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart rescue(struct hrtimer *timer)
{
	struct guest_net *net = container_of(timer, struct guest_net, rescue);
	bool napi = net->mode == NAPI || net->mode == BACKOFF;

	if (!net->open)
		return HRTIMER_NORESTART;
	if (net->mode == INTERRUPT) {
		spin_lock(&net->rx_lock);
		refill(net);
		spin_unlock(&net->rx_lock);
	} else if (napi && napi_schedule_prep(&net->napi)) {
		virtqueue_disable_cb(net->rx);
		__napi_schedule(&net->napi);
	}
	/* `refill` cannot start the timer that calls it. */
	if (!net->rx->num_free || net->mode != INTERRUPT)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime(RESCUE));
	return HRTIMER_RESTART;
}

static int watch(void *data)
{
	struct guest_net *net = data;

	while (!kthread_should_stop()) {
		int done;

		local_bh_disable();
		done = receive(net, quota);
		local_bh_enable();
		if (net->mode == TIMED)
			usleep_range(period, period + period / 10);
		else
			cond_resched();
	}
	return 0;
}

/* The device has used something of the receive ring. */
static void interrupted(struct virtqueue *rx)
{
	struct guest_net *net = rx->vdev->priv;
	struct sk_buff *skb;
	u64 from;

	if (!net->open)
		return;
	switch (net->mode) {
	case INTERRUPT:
		interrupts++;
		from = ktime_get_ns();
		spin_lock(&net->rx_lock);
		while ((skb = take(net))) {
			netif_rx(skb);
			refill(net);
		}
		spin_unlock(&net->rx_lock);
		handler_ns += ktime_get_ns() - from;
		break;
	case NAPI:
	case BACKOFF:
		interrupts++;
		if (napi_schedule_prep(&net->napi)) {
			virtqueue_disable_cb(rx);
			__napi_schedule(&net->napi);
		}
		break;
	default:
		break;
	}
}

static void reclaim(struct guest_net *net)
{
	struct sk_buff *skb;
	unsigned int len;

	while ((skb = virtqueue_get_buf(net->tx, &len)))
		dev_consume_skb_any(skb);
}

static netdev_tx_t transmit(struct sk_buff *skb, struct net_device *dev)
{
	struct guest_net *net = netdev_priv(dev);
	struct scatterlist sg[2 + MAX_SKB_FRAGS];
	unsigned long flags;
	int parts;

	if (skb_cow_head(skb, HEADER))
		goto drop;
	memset(skb_push(skb, HEADER), 0, HEADER);
	sg_init_table(sg, ARRAY_SIZE(sg));
	parts = skb_to_sgvec(skb, sg, 0, skb->len);
	if (parts < 0)
		goto drop;
	spin_lock_irqsave(&net->tx_lock, flags);
	reclaim(net);
	parts = virtqueue_add_outbuf(net->tx, sg, parts, skb, GFP_ATOMIC);
	if (!parts)
		virtqueue_kick(net->tx);
	spin_unlock_irqrestore(&net->tx_lock, flags);
	if (parts)
		goto drop;
	dev->stats.tx_packets++;
	return NETDEV_TX_OK;
drop:
	dev->stats.tx_dropped++;
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

/*
 * Fills the ring for the first time. Frames that have waited for it interrupt at once, and the handler of `interrupt`
 * fills it as well, so interrupts are off meanwhile. What is left in the ring from before the interface was down is
 * dropped: it would never cause an interrupt.
 */
static void begin_receive(struct guest_net *net)
{
	struct sk_buff *skb;
	unsigned long flags;

	spin_lock_irqsave(&net->rx_lock, flags);
	net->open = true;
	virtqueue_disable_cb(net->rx);
	do {
		while ((skb = take(net)))
			dev_kfree_skb_any(skb);
	} while (net->mode == INTERRUPT && !virtqueue_enable_cb(net->rx));
	refill(net);
	spin_unlock_irqrestore(&net->rx_lock, flags);
}

static int open(struct net_device *dev)
{
	struct guest_net *net = netdev_priv(dev);

	begin_receive(net);
	switch (net->mode) {
	case NAPI:
	case BACKOFF:
		napi_enable(&net->napi);
		local_bh_disable();
		listen(net);
		local_bh_enable();
		break;
	case POLL:
	case TIMED:
		net->thread = kthread_run(watch, net, "lastmeter_net");
		if (IS_ERR(net->thread))
			return PTR_ERR(net->thread);
		break;
	default:
		break;
	}
	netif_start_queue(dev);
	return 0;
}

static int stop(struct net_device *dev)
{
	struct guest_net *net = netdev_priv(dev);

	net->open = false;
	netif_stop_queue(dev);
	hrtimer_cancel(&net->rescue);
	if (net->mode == NAPI || net->mode == BACKOFF) {
		hrtimer_cancel(&net->timer);
		napi_disable(&net->napi);
	} else if (net->thread) {
		kthread_stop(net->thread);
		net->thread = NULL;
	}
	virtqueue_disable_cb(net->rx);
	return 0;
}

static const struct net_device_ops operations = {
	.ndo_open = open,
	.ndo_stop = stop,
	.ndo_start_xmit = transmit,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_mac_address = eth_mac_addr,
};

static void free_pages_of(struct guest_net *net)
{
	unsigned int i;

	for (i = 0; net->pages && i < buffers; i++)
		if (net->pages[i])
			put_page(net->pages[i]);
	kvfree(net->pages);
}

static int allocate(struct guest_net *net)
{
	unsigned int i;

	net->pages = kvcalloc(buffers, sizeof(*net->pages), GFP_KERNEL);
	if (!net->pages)
		return -ENOMEM;
	for (i = 0; i < buffers; i++) {
		net->pages[i] = alloc_page(GFP_KERNEL);
		if (!net->pages[i])
			return -ENOMEM;
	}
	return 0;
}

static int probe(struct virtio_device *vdev)
{
	vq_callback_t *callbacks[] = { interrupted, NULL };
	static const char *const queues[] = { "receive", "transmit" };
	struct virtqueue *found[2];
	struct guest_net *net;
	struct net_device *dev;
	u8 mac[ETH_ALEN];
	int error;

	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1))
		return -ENODEV;
	dev = alloc_etherdev(sizeof(*net));
	if (!dev)
		return -ENOMEM;
	net = netdev_priv(dev);
	net->dev = dev;
	net->vdev = vdev;
	net->mode = match_string(names, MODES, mode);
	spin_lock_init(&net->rx_lock);
	spin_lock_init(&net->tx_lock);
	hrtimer_init(&net->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	net->timer.function = expired;
	hrtimer_init(&net->rescue, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	net->rescue.function = rescue;
	vdev->priv = net;
	SET_NETDEV_DEV(dev, &vdev->dev);
	dev->netdev_ops = &operations;
	dev->needed_headroom = HEADER;
	eth_hw_addr_random(dev);
	if (virtio_has_feature(vdev, VIRTIO_NET_F_MAC)) {
		virtio_cread_bytes(vdev, offsetof(struct virtio_net_config, mac), mac, ETH_ALEN);
		eth_hw_addr_set(dev, mac);
	}
	error = allocate(net);
	if (error)
		goto pages;
	error = virtio_find_vqs(vdev, 2, found, callbacks, queues, NULL);
	if (error)
		goto pages;
	net->rx = found[0];
	net->tx = found[1];
	if (net->mode == NAPI || net->mode == BACKOFF)
		netif_napi_add(dev, &net->napi, poll);
	virtio_device_ready(vdev);
	error = register_netdev(dev);
	if (!error)
		return 0;
	virtio_reset_device(vdev);
	vdev->config->del_vqs(vdev);
pages:
	free_pages_of(net);
	free_netdev(dev);
	return error;
}

static void gone(struct virtio_device *vdev)
{
	struct guest_net *net = vdev->priv;
	struct sk_buff *skb;
	struct page *page;

	unregister_netdev(net->dev);
	virtio_reset_device(vdev);
	while ((page = virtqueue_detach_unused_buf(net->rx)))
		put_page(page);
	while ((skb = virtqueue_detach_unused_buf(net->tx)))
		dev_kfree_skb(skb);
	vdev->config->del_vqs(vdev);
	free_pages_of(net);
	free_netdev(net->dev);
}

static const struct virtio_device_id ids[] = {
	{ VIRTIO_ID_NET, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
static const unsigned int features[] = { VIRTIO_NET_F_MAC };

static struct virtio_driver driver = {
	.feature_table = features,
	.feature_table_size = ARRAY_SIZE(features),
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = ids,
	.probe = probe,
	.remove = gone,
};

static int __init begin(void)
{
	if (match_string(names, MODES, mode) < 0) {
		pr_err("lastmeter_net: mode=%s: interrupt, napi, backoff, poll or timed\n", mode);
		return -EINVAL;
	}
	if (buffers < host_buffers || buffers > BUFFERS_MAX || !quota || !period)
		return -EINVAL;
	return register_virtio_driver(&driver);
}

static void __exit end(void)
{
	unregister_virtio_driver(&driver);
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("virtio-net, received by interrupts, NAPI, polling or backoff");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DEVICE_TABLE(virtio, ids);
