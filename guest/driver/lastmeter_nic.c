// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A network driver of simple-nic: two rings of descriptors in memory, registers for their indexes, a vector for each.
 *
 * `lastmeter kinds ADAPTER --driver` writes it for any adapter in five sections: what differs is between the lines
 * "description" and "end of description". crates/guest/src/registers says what the registers mean.
 *
 * With `mode=napi` an interrupt starts polling, and stays masked until there is nothing left; with `mode=interrupt` its
 * handler takes all there is, without a limit; with `mode=timed` there is none, and a thread looks each `period`
 * microseconds.
 */
#include <linux/etherdevice.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <asm/unaligned.h>

/* description */
#define ADAPTER "simple-nic"
#define MODE "napi" /* synchronisation = "mixed" */
#define DESCRIPTORS 1024 /* of each ring; depth = 1024 */
#define DOORBELL 1 /* packets for each; doorbell-batch = 1 */
/* end of description */

#define VENDOR 0x4c4d
#define DEVICE 0x0001
#define MAGIC 0x314e4d4c

/* Registers. */
#define ID 0x00
#define CONTROL 0x04
#define RESET 1
#define MAC 0x0c
#define BUFFERED 0x1c
#define IN_FLIGHT 0x20
#define LOST 0x24
#define RINGS 0x100
#define RING_SIZE 0x40
#define BASE 0x00
#define LENGTH 0x08
#define ENABLE 0x0c
#define TAIL 0x14
#define ARM 0x18

#define DONE 1
#define BUFFER 2048
/* Buffers that are taken before the device is told that they are free again. */
#define REFILL 16

enum { RECEIVE, TRANSMIT };

static char *mode = MODE;
module_param(mode, charp, 0444);
static unsigned int period = 500; /* us, of `timed` */
module_param(period, uint, 0444);
static unsigned int quota = 64; /* packets at once, of `timed` */
module_param(quota, uint, 0444);

static ulong interrupts, polls, packets;
module_param(interrupts, ulong, 0444);
module_param(polls, ulong, 0444);
module_param(packets, ulong, 0444);

enum mode { INTERRUPT, NAPI, TIMED, MODES };
static const char *const names[MODES] = { "interrupt", "napi", "timed" };

struct descriptor {
	__le64 address;
	__le32 length;
	__le16 status;
	__le16 reserved;
};

struct buffer {
	struct sk_buff *skb;
	dma_addr_t address;
};

struct ring {
	struct nic *nic;
	void __iomem *registers;
	struct descriptor *descriptors;
	dma_addr_t base;
	struct buffer buffers[DESCRIPTORS];
	/* Offered to the device, told to it, and taken back. */
	u16 offered, told, taken;
	struct napi_struct napi;
	spinlock_t lock;
};

struct nic {
	struct pci_dev *pci;
	struct net_device *dev;
	void __iomem *registers;
	enum mode mode;
	struct task_struct *thread;
	struct ring rings[2];
};

static void offer(struct ring *ring, struct sk_buff *skb, dma_addr_t address, u32 length)
{
	unsigned int slot = ring->offered % DESCRIPTORS;
	struct descriptor *descriptor = &ring->descriptors[slot];

	ring->buffers[slot] = (struct buffer){ skb, address };
	descriptor->address = cpu_to_le64(address);
	descriptor->length = cpu_to_le32(length);
	descriptor->status = 0;
	ring->offered++;
}

/* The doorbell. */
static void tell(struct ring *ring)
{
	if (ring->told == ring->offered)
		return;
	ring->told = ring->offered;
	writel(ring->offered, ring->registers + TAIL);
}

/* Waits for the next interrupt. */
static void arm(struct ring *ring)
{
	writel(ring->taken, ring->registers + ARM);
}

/* Whether the device has done with the next descriptor. */
static bool is_done(struct ring *ring)
{
	struct descriptor *descriptor = &ring->descriptors[ring->taken % DESCRIPTORS];

	if (ring->taken == ring->offered || !(READ_ONCE(descriptor->status) & cpu_to_le16(DONE)))
		return false;
	dma_rmb();
	return true;
}

/* Offers a new buffer for reception. */
static int refill(struct ring *ring)
{
	struct device *dev = &ring->nic->pci->dev;
	struct sk_buff *skb = netdev_alloc_skb_ip_align(ring->nic->dev, BUFFER);
	dma_addr_t address;

	if (!skb)
		return -ENOMEM;
	address = dma_map_single(dev, skb->data, BUFFER, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, address)) {
		dev_kfree_skb_any(skb);
		return -ENOMEM;
	}
	offer(ring, skb, address, BUFFER);
	return 0;
}

/* The next packet, or none. Its buffer is replaced, or used again if there is no other. */
static struct sk_buff *take(struct ring *ring)
{
	struct net_device *dev = ring->nic->dev;

	while (is_done(ring)) {
		unsigned int slot = ring->taken % DESCRIPTORS;
		struct buffer buffer = ring->buffers[slot];
		u32 length = le32_to_cpu(ring->descriptors[slot].length);

		ring->taken++;
		if (length < ETH_HLEN || length > BUFFER || refill(ring)) {
			dev->stats.rx_dropped++;
			offer(ring, buffer.skb, buffer.address, BUFFER);
			continue;
		}
		dma_unmap_single(&ring->nic->pci->dev, buffer.address, BUFFER, DMA_FROM_DEVICE);
		skb_put(buffer.skb, length);
		buffer.skb->protocol = eth_type_trans(buffer.skb, dev);
		dev->stats.rx_packets++;
		dev->stats.rx_bytes += length;
		packets++;
		if ((u16)(ring->offered - ring->told) >= REFILL)
			tell(ring);
		return buffer.skb;
	}
	return NULL;
}

static int receive(struct ring *ring, int most)
{
	struct sk_buff *skb;
	int done = 0;

	polls++;
	while (done < most && (skb = take(ring))) {
		if (ring->nic->mode == NAPI)
			napi_gro_receive(&ring->napi, skb);
		else
			netif_receive_skb(skb);
		done++;
	}
	tell(ring);
	return done;
}

static int poll_receive(struct napi_struct *napi, int budget)
{
	struct ring *ring = container_of(napi, struct ring, napi);
	int done = receive(ring, budget);

	if (done < budget && napi_complete_done(napi, done))
		arm(ring);
	return done;
}

/* Frees what was sent. */
static int reclaim(struct ring *ring, int budget)
{
	struct nic *nic = ring->nic;
	int done = 0;

	spin_lock(&ring->lock);
	while (is_done(ring)) {
		struct buffer *buffer = &ring->buffers[ring->taken % DESCRIPTORS];

		dma_unmap_single(&nic->pci->dev, buffer->address, buffer->skb->len, DMA_TO_DEVICE);
		napi_consume_skb(buffer->skb, budget);
		buffer->skb = NULL;
		ring->taken++;
		done++;
	}
	if (done && netif_queue_stopped(nic->dev))
		netif_wake_queue(nic->dev);
	spin_unlock(&ring->lock);
	return done;
}

static int poll_transmit(struct napi_struct *napi, int budget)
{
	struct ring *ring = container_of(napi, struct ring, napi);

	if (!budget)
		return 0;
	reclaim(ring, budget);
	if (napi_complete_done(napi, 0))
		arm(ring);
	return 0;
}

static irqreturn_t interrupted(int number, void *data)
{
	struct ring *ring = data;
	struct sk_buff *skb;

	interrupts++;
	if (ring == &ring->nic->rings[TRANSMIT] || ring->nic->mode == NAPI) {
		napi_schedule_irqoff(&ring->napi);
		return IRQ_HANDLED;
	}
	while ((skb = take(ring)))
		netif_rx(skb);
	tell(ring);
	arm(ring);
	return IRQ_HANDLED;
}

static int watch(void *data)
{
	struct nic *nic = data;

	while (!kthread_should_stop()) {
		local_bh_disable();
		receive(&nic->rings[RECEIVE], quota);
		local_bh_enable();
		usleep_range(period, period + period / 10);
	}
	return 0;
}

static netdev_tx_t transmit(struct sk_buff *skb, struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);
	struct ring *ring = &nic->rings[TRANSMIT];
	bool more = netdev_xmit_more();
	dma_addr_t address = dma_map_single(&nic->pci->dev, skb->data, skb->len, DMA_TO_DEVICE);

	if (dma_mapping_error(&nic->pci->dev, address)) {
		dev->stats.tx_dropped++;
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	spin_lock_bh(&ring->lock);
	dev->stats.tx_packets++;
	dev->stats.tx_bytes += skb->len;
	offer(ring, skb, address, skb->len);
	if ((u16)(ring->offered - ring->taken) == DESCRIPTORS)
		netif_stop_queue(dev);
	if (!more || netif_queue_stopped(dev) || (u16)(ring->offered - ring->told) >= DOORBELL)
		tell(ring);
	spin_unlock_bh(&ring->lock);
	return NETDEV_TX_OK;
}

static void start(struct ring *ring)
{
	ring->offered = ring->told = ring->taken = 0;
	memset(ring->descriptors, 0, DESCRIPTORS * sizeof(*ring->descriptors));
	writel(lower_32_bits(ring->base), ring->registers + BASE);
	writel(upper_32_bits(ring->base), ring->registers + BASE + 4);
	writel(DESCRIPTORS, ring->registers + LENGTH);
	writel(1, ring->registers + ENABLE);
}

/* Once the device has let go of its buffers. */
static void empty(struct ring *ring, enum dma_data_direction direction)
{
	for (; ring->taken != ring->offered; ring->taken++) {
		struct buffer *buffer = &ring->buffers[ring->taken % DESCRIPTORS];
		u32 length = direction == DMA_TO_DEVICE ? buffer->skb->len : BUFFER;

		dma_unmap_single(&ring->nic->pci->dev, buffer->address, length, direction);
		dev_kfree_skb_any(buffer->skb);
	}
}

static int stop(struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);
	struct ring *rx = &nic->rings[RECEIVE], *tx = &nic->rings[TRANSMIT];

	netif_tx_disable(dev);
	netif_carrier_off(dev);
	if (nic->thread)
		kthread_stop(nic->thread);
	nic->thread = NULL;
	/* Written, and read, so that it has happened. */
	writel(0, rx->registers + ENABLE);
	writel(0, tx->registers + ENABLE);
	readl(tx->registers + ENABLE);
	synchronize_irq(pci_irq_vector(nic->pci, RECEIVE));
	synchronize_irq(pci_irq_vector(nic->pci, TRANSMIT));
	napi_disable(&rx->napi);
	napi_disable(&tx->napi);
	empty(rx, DMA_FROM_DEVICE);
	empty(tx, DMA_TO_DEVICE);
	return 0;
}

static int open(struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);
	struct ring *rx = &nic->rings[RECEIVE], *tx = &nic->rings[TRANSMIT];
	int slot, error = 0;

	start(tx);
	start(rx);
	for (slot = 0; slot < DESCRIPTORS && !error; slot++)
		error = refill(rx);
	napi_enable(&rx->napi);
	napi_enable(&tx->napi);
	if (nic->mode == TIMED && !error) {
		nic->thread = kthread_run(watch, nic, "lastmeter_nic");
		if (IS_ERR(nic->thread)) {
			error = PTR_ERR(nic->thread);
			nic->thread = NULL;
		}
	}
	if (error) {
		stop(dev);
		return error;
	}
	tell(rx);
	arm(tx);
	if (nic->mode != TIMED)
		arm(rx);
	netif_carrier_on(dev);
	netif_start_queue(dev);
	return 0;
}

static void statistics(struct net_device *dev, struct rtnl_link_stats64 *counts)
{
	struct nic *nic = netdev_priv(dev);

	netdev_stats_to_stats64(counts, &dev->stats);
	counts->rx_missed_errors = readl(nic->registers + LOST);
	counts->tx_errors = readl(nic->registers + LOST + 4);
}

static const struct net_device_ops operations = {
	.ndo_open = open,
	.ndo_stop = stop,
	.ndo_start_xmit = transmit,
	.ndo_get_stats64 = statistics,
	.ndo_validate_addr = eth_validate_addr,
};

/* The state of the adapter's FIFOs, in the files `buffered` (bytes on their way in) and `in_flight` (frames out). */
static ssize_t show(struct device *dev, char *text, int offset)
{
	struct nic *nic = dev_get_drvdata(dev);

	return sysfs_emit(text, "%u\n", readl(nic->registers + offset));
}

static ssize_t buffered_show(struct device *dev, struct device_attribute *which, char *text)
{
	return show(dev, text, BUFFERED);
}

static ssize_t in_flight_show(struct device *dev, struct device_attribute *which, char *text)
{
	return show(dev, text, IN_FLIGHT);
}

static DEVICE_ATTR_RO(buffered);
static DEVICE_ATTR_RO(in_flight);
static struct attribute *nic_attrs[] = {
	&dev_attr_buffered.attr,
	&dev_attr_in_flight.attr,
	NULL,
};
ATTRIBUTE_GROUPS(nic);

/* What the device has of each ring, and its interrupt. */
static int prepare(struct nic *nic, int which)
{
	struct ring *ring = &nic->rings[which];

	ring->nic = nic;
	ring->registers = nic->registers + RINGS + which * RING_SIZE;
	spin_lock_init(&ring->lock);
	ring->descriptors = dmam_alloc_coherent(&nic->pci->dev,
						DESCRIPTORS * sizeof(*ring->descriptors),
						&ring->base, GFP_KERNEL);
	if (!ring->descriptors)
		return -ENOMEM;
	return devm_request_irq(&nic->pci->dev, pci_irq_vector(nic->pci, which), interrupted, 0,
				which == RECEIVE ? "lastmeter_nic-rx" : "lastmeter_nic-tx", ring);
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct net_device *dev;
	struct nic *nic;
	u8 mac[8];
	int error;

	dev = devm_alloc_etherdev(&pci->dev, sizeof(*nic));
	if (!dev)
		return -ENOMEM;
	nic = netdev_priv(dev);
	nic->dev = dev;
	nic->pci = pci;
	nic->mode = match_string(names, MODES, mode);
	pci_set_drvdata(pci, nic);
	error = pcim_enable_device(pci);
	if (!error)
		error = pcim_iomap_regions(pci, BIT(0), KBUILD_MODNAME);
	if (!error)
		error = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	nic->registers = pcim_iomap_table(pci)[0];
	if (readl(nic->registers + ID) != MAGIC)
		return -ENODEV;
	writel(RESET, nic->registers + CONTROL);
	pci_set_master(pci);
	error = pci_alloc_irq_vectors(pci, 2, 2, PCI_IRQ_MSIX);
	if (error < 0)
		return error;
	error = prepare(nic, RECEIVE);
	if (!error)
		error = prepare(nic, TRANSMIT);
	if (error)
		return error;
	put_unaligned_le32(readl(nic->registers + MAC), mac);
	put_unaligned_le32(readl(nic->registers + MAC + 4), mac + 4);
	eth_hw_addr_set(dev, mac);
	SET_NETDEV_DEV(dev, &pci->dev);
	dev->netdev_ops = &operations;
	netif_napi_add(dev, &nic->rings[RECEIVE].napi, poll_receive);
	netif_napi_add_tx(dev, &nic->rings[TRANSMIT].napi, poll_transmit);
	netif_carrier_off(dev);
	return register_netdev(dev);
}

static void gone(struct pci_dev *pci)
{
	struct nic *nic = pci_get_drvdata(pci);

	unregister_netdev(nic->dev);
	writel(RESET, nic->registers + CONTROL);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(VENDOR, DEVICE) },
	{ 0 },
};

static struct pci_driver driver = {
	.name = KBUILD_MODNAME,
	.id_table = ids,
	.probe = probe,
	.remove = gone,
	.dev_groups = nic_groups,
};

static int __init begin(void)
{
	if (match_string(names, MODES, mode) < 0) {
		pr_err("lastmeter_nic: mode=%s: interrupt, napi or timed\n", mode);
		return -EINVAL;
	}
	return period && quota ? pci_register_driver(&driver) : -EINVAL;
}

static void __exit end(void)
{
	pci_unregister_driver(&driver);
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("The driver of " ADAPTER ", an adapter that is described");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DEVICE_TABLE(pci, ids);
