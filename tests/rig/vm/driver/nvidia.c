// SPDX-License-Identifier: GPL-2.0
/* Stands in for NVIDIA's kernel module in the guest of the rig: what the rest of the kernel can see of it, and nothing else.
 *
 * QEMU has no endpoint with AER that says it is a GPU. So below a switch a virtio random number generator is taken from its
 * driver and its cached ids (all that sysfs and driver matching know) become those of a GPU; a virtio disk keeps its driver and
 * becomes an NVMe drive by class. Of the configuration space the first word says the same, whenever the device answers at all; the
 * rest stays its own: what is read there is what the bus answers.
 *
 *     echo '<3>NVRM: ...' > /sys/module/nvidia/parameters/say      a line of kernel origin
 *     echo 100000 > .../flood                                      so many lines of no meaning
 *     echo 1 > .../hang                                            every CPU spins with interrupts off, for ever
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/stop_machine.h>

#define VIRTIO 0x1af4
#define VIRTIO_DISK 0x1042
#define VIRTIO_RNG 0x1044
#define GPU 0x2335
#define CLASS_NVME 0x010802
#define CLASS_GPU 0x030200

static bool below_switch(struct pci_dev *dev)
{
	return dev->bus->self && pci_pcie_type(dev->bus->self) == PCI_EXP_TYPE_DOWNSTREAM;
}

static struct pci_ops *raw; /* how every bus is asked */
static struct pci_ops gpu_ops; /* how one with a GPU on it is */

static int read_gpu(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	int error = raw->read(bus, devfn, where, size, value);

	if (!error && where == 0 && size == 4 && *value == (VIRTIO_RNG << 16 | VIRTIO))
		*value = GPU << 16 | PCI_VENDOR_ID_NVIDIA;
	return error;
}

static void answer_as_gpu(struct pci_bus *bus)
{
	if (bus->ops == &gpu_ops)
		return;
	if (!raw) {
		raw = bus->ops;
		gpu_ops = *raw;
		gpu_ops.read = read_gpu;
	}
	pci_bus_set_ops(bus, &gpu_ops);
}

static void disguise(struct pci_dev *dev)
{
	if (dev->vendor == PCI_VENDOR_ID_NVIDIA && dev->bus->ops == &gpu_ops)
		dev->class = CLASS_GPU; /* it was away for a while, and its bus was not */
	if (dev->vendor != VIRTIO || !below_switch(dev))
		return;
	if (dev->device == VIRTIO_DISK)
		dev->class = CLASS_NVME;
	if (dev->device != VIRTIO_RNG)
		return;
	dev->vendor = PCI_VENDOR_ID_NVIDIA;
	dev->device = GPU;
	dev->class = CLASS_GPU;
	answer_as_gpu(dev->bus);
}

/* Before the driver core looks for a driver: a GPU that comes back by a rescan is one from the beginning. */
static int on_bus_event(struct notifier_block *block, unsigned long event, void *data)
{
	if (event == BUS_NOTIFY_ADD_DEVICE)
		disguise(to_pci_dev(data));
	return NOTIFY_DONE;
}

static struct notifier_block newcomers = { .notifier_call = on_bus_event };

static int nvidia_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	int error = pci_enable_device_mem(dev);

	if (error)
		return error;
	pci_set_master(dev);
	pm_runtime_put_noidle(&dev->dev); /* asleep as soon as power/control says auto */
	return 0;
}

static void nvidia_remove(struct pci_dev *dev)
{
	pm_runtime_get_noresume(&dev->dev);
	pci_disable_device(dev);
}

static int nvidia_idle(struct device *dev)
{
	return 0;
}

static const struct dev_pm_ops nvidia_pm = { SET_RUNTIME_PM_OPS(nvidia_idle, nvidia_idle, NULL) };
static const struct pci_device_id nvidia_ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID) }, { } };

static struct pci_driver nvidia_driver = {
	.name = "nvidia",
	.id_table = nvidia_ids,
	.probe = nvidia_probe,
	.remove = nvidia_remove,
	.driver.pm = &nvidia_pm,
};

static int say(const char *text, const struct kernel_param *param)
{
	char level = '4';

	if (text[0] == '<' && text[1] >= '0' && text[1] <= '7' && text[2] == '>') {
		level = text[1];
		text += 3;
	}
	_printk(KERN_SOH "%c%.*s\n", level, (int)strcspn(text, "\n"), text);
	return 0;
}

static int flood(const char *text, const struct kernel_param *param)
{
	unsigned int lines, line;
	int error = kstrtouint(text, 0, &lines);

	for (line = 0; !error && line < lines; line++)
		printk(KERN_INFO "flood: line %u of %u, which means nothing to anybody\n", line + 1, lines);
	return error;
}

static int spin(void *unused)
{
	while (true)
		barrier(); /* not cpu_relax(): an emulator that counts instructions hardly gets on over a pause */
	return 0;
}

static int hang(const char *text, const struct kernel_param *param)
{
	return stop_machine(spin, NULL, cpu_online_mask);
}

static const struct kernel_param_ops say_ops = { .set = say };
static const struct kernel_param_ops flood_ops = { .set = flood };
static const struct kernel_param_ops hang_ops = { .set = hang };
module_param_cb(say, &say_ops, NULL, 0200);
module_param_cb(flood, &flood_ops, NULL, 0200);
module_param_cb(hang, &hang_ops, NULL, 0200);

static void take_over(void)
{
	struct pci_dev *dev = NULL;

	while ((dev = pci_get_device(VIRTIO, PCI_ANY_ID, dev))) {
		if (!below_switch(dev))
			continue;
		if (dev->device == VIRTIO_RNG)
			device_release_driver(&dev->dev);
		disguise(dev);
	}
}

static int __init nvidia_init(void)
{
	int error = bus_register_notifier(&pci_bus_type, &newcomers);

	if (error)
		return error;
	take_over();
	error = pci_register_driver(&nvidia_driver);
	if (error)
		bus_unregister_notifier(&pci_bus_type, &newcomers);
	return error;
}

static void __exit nvidia_exit(void)
{
	struct pci_dev *dev = NULL;

	pci_unregister_driver(&nvidia_driver);
	bus_unregister_notifier(&pci_bus_type, &newcomers);
	while ((dev = pci_get_device(PCI_VENDOR_ID_NVIDIA, GPU, dev)))
		if (dev->bus->ops == &gpu_ops)
			pci_bus_set_ops(dev->bus, raw);
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stand-in for the NVIDIA driver, for tests in a virtual machine");
