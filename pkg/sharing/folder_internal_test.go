package sharing

import (
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	block := func(s string) []byte { return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte(s)}) }
	list := func(of ...string) (all []byte) {
		for _, s := range of {
			all = append(all, block(s)...)
		}
		return all
	}
	type files = map[string][]byte
	for name, c := range map[string]struct {
		reason      string
		last        files // when folder and storage were the same; nil: they never were
		ours, their files
		want        files
		err         string
	}{
		"a first server": {
			reason: "the storage has nothing yet",
			ours:   files{"ca.key": []byte("a")}, want: files{"ca.key": []byte("a")},
		},
		"a further server": {
			reason: "it has nothing yet",
			their:  files{"ca.key": []byte("a"), "ca.crt": []byte("b")}, want: files{"ca.key": []byte("a"), "ca.crt": []byte("b")},
		},
		"copied by hand": {
			reason: "the files are the same, although they were never in the storage from here",
			ours:   files{"ca.key": []byte("a")}, their: files{"ca.key": []byte("a")}, want: files{"ca.key": []byte("a")},
		},
		"a server of its own": {
			reason: "users of its authority would be refused all of a sudden",
			ours:   files{"ca.key": []byte("a")}, their: files{"ca.key": []byte("b")},
			err: "another certificate authority",
		},
		"changed here": {
			reason: "others get it",
			last:   files{"admin.crt": []byte("a")}, ours: files{"admin.crt": []byte("b")}, their: files{"admin.crt": []byte("a")},
			want: files{"admin.crt": []byte("b")},
		},
		"changed there": {
			reason: "also while this server did not run",
			last:   files{"ca.key": []byte("a")}, ours: files{"ca.key": []byte("a")}, their: files{"ca.key": []byte("b")},
			want: files{"ca.key": []byte("b")},
		},
		"changed in both": {
			reason: "one of them has to give way, and all servers have the same",
			last:   files{"admin.crt": []byte("a")}, ours: files{"admin.crt": []byte("b")}, their: files{"admin.crt": []byte("c")},
			want: files{"admin.crt": []byte("c")},
		},
		"revoked in both": {
			reason: "no revocation is lost",
			last:   files{"revoked.crl": list("a")}, ours: files{"revoked.crl": list("a", "b")}, their: files{"revoked.crl": list("a", "c")},
			want: files{"revoked.crl": list("a", "c", "b")},
		},
		"deleted here": {
			reason: "who starts over with a folder gets what the others have",
			last:   files{"ca.key": []byte("a")}, their: files{"ca.key": []byte("a")}, want: files{"ca.key": []byte("a")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours := &content{folder: folder{path: "pki"}, files: c.ours, last: map[string]string{}}
			for name, data := range c.last {
				ours.last[name] = sum(data)
			}
			got, err := ours.merge(c.their)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q (%s)", err, c.err, c.reason)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v (%s) (-want +got):\n%s", err, c.reason, diff)
			}
		})
	}
}
