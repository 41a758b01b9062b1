package etcdapi

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// compactKey is where API servers note how far they compacted. It is the one
	// key whose version they compare
	// (https://github.com/kubernetes/kubernetes/blob/v1.37.1/staging/src/k8s.io/apiserver/pkg/storage/etcd3/compact.go).
	compactKey = "compact_rev_key"
	// compactKeyStored is its name in a log, whose value starts with the version:
	// "3|1024". Both are kine's, whose tables have a row compact_rev_key of their own.
	compactKeyStored = "compact_rev_key_apiserver"
)

// isVersioned tells whether a log has the version of a key in its value: that of where
// API servers note how far they compacted, on the storage or on a part that is lent.
func isVersioned(stored string) bool {
	if stored == compactKeyStored {
		return true
	}
	if !strings.HasSuffix(stored, compactKey) {
		return false
	}
	key, isLent := keys.Lent(stored)
	return isLent && key == compactKey
}

func storedKey(key []byte) string {
	if string(key) == compactKey {
		return compactKeyStored
	}
	return string(key)
}

func storedSpan(key, end []byte) revision.Span {
	if len(end) == 0 {
		return revision.Span{Key: storedKey(key)}
	}
	return revision.Span{Key: string(key), End: string(end)}
}

func clientKey(key string) []byte {
	if key == compactKeyStored {
		return []byte(compactKey)
	}
	return []byte(key)
}

// nextVersion returns the value to write after kv, which may be nil.
func nextVersion(kv *revision.KeyValue, value []byte) []byte {
	var version int64
	if kv != nil {
		version, _ = decodeVersion(kv.Value)
	}
	return fmt.Appendf(nil, "%d|%s", version+1, value)
}

// decodeVersion splits a stored value. Old releases of kine wrote the version
// alone.
func decodeVersion(stored []byte) (version int64, value []byte) {
	head, value, found := bytes.Cut(stored, []byte("|"))
	version, _ = strconv.ParseInt(string(head), 10, 64) // 0 where there is none
	if !found {
		value = []byte("0")
	}
	return version, value
}
