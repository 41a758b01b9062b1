package storageapi

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// Limits bound what one tenant can make large. Zero values are the defaults below.
type Limits struct {
	// Keys is the number of keys. Default: 100,000.
	Keys int64
	// Bytes is the size of all keys with their values. Default: 1 GiB.
	Bytes int64
	// ValueBytes is the size of one value. Default: 1.5 MiB, as etcd's --max-request-bytes.
	ValueBytes int64
	// Watches is the number of watches that are open at the same time, over all connections. Default:
	// 1,000. An API server has one for each kind of object that it stores.
	Watches int
	// WritesPerSecond is the number of puts and deletions in a second. Default: 100.
	WritesPerSecond int
}

const (
	defaultKeys            = 100_000
	defaultBytes           = 1 << 30
	defaultValueBytes      = 3 << 19
	defaultWatches         = 1000
	defaultWritesPerSecond = 100
)

// orDefaults are the limits, with the defaults for those that are zero.
func (l Limits) orDefaults() Limits {
	return Limits{
		Keys:            cmp.Or(l.Keys, defaultKeys),
		Bytes:           cmp.Or(l.Bytes, defaultBytes),
		ValueBytes:      cmp.Or(l.ValueBytes, defaultValueBytes),
		Watches:         cmp.Or(l.Watches, defaultWatches),
		WritesPerSecond: cmp.Or(l.WritesPerSecond, defaultWritesPerSecond),
	}
}

// of are the limits of a tenant: what it asks for, and never more than l, which may have become less
// since it asked.
func (l Limits) of(spec v1alpha1.EtcdStorageLimits) Limits {
	asked := l.orDefaults().each(spec)
	return Limits{
		Keys:            asked[0].value(),
		Bytes:           asked[1].value(),
		ValueBytes:      asked[2].value(),
		Watches:         int(asked[3].value()),
		WritesPerSecond: int(asked[4].value()),
	}
}

// limit is one of a tenant's limits.
type limit struct {
	field string
	asked *resource.Quantity // nil: what the operator allows
	most  int64
}

// each are the limits that a tenant asks for, in the order of the fields.
func (l Limits) each(spec v1alpha1.EtcdStorageLimits) [5]limit {
	return [...]limit{
		{"keys", number(spec.Keys), l.Keys},
		{"bytes", spec.Bytes, l.Bytes},
		{"valueBytes", spec.ValueBytes, l.ValueBytes},
		{"watches", number(spec.Watches), int64(l.Watches)},
		{"writesPerSecond", number(spec.WritesPerSecond), int64(l.WritesPerSecond)},
	}
}

func number(n *int64) *resource.Quantity {
	if n == nil {
		return nil
	}
	return resource.NewQuantity(*n, resource.DecimalSI)
}

// value is the smaller of what is asked and what is allowed.
func (l limit) value() int64 {
	if l.asked == nil || l.asked.CmpInt64(l.most) >= 0 {
		return l.most
	}
	return l.asked.Value()
}
