package etcd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestFull(t *testing.T) {
	dir := os.Getenv("FULLDIR")
	s := Embedded{Dir: dir + "/data"}.Open()
	err := s.Start(t.Context())
	t.Log("start:", err)
	if err == nil {
		c, _ := s.Client()
		v := strings.Repeat("x", 1<<20)
		for i := range 400 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b := time.Now()
			_, err := c.Put(ctx, fmt.Sprintf("/t/%d", i), v)
			cancel()
			if err != nil {
				t.Log("put", i, time.Since(b), err)
				b = time.Now()
				_, err = c.Get(t.Context(), "/t/0")
				t.Log("get", time.Since(b), err)
				break
			}
		}
	}
	b := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	t.Log("stop:", s.Stop(ctx), time.Since(b))
	b = time.Now()
	ctx, cancel2 := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel2()
	again := Embedded{Dir: dir + "/data"}.Open()
	t.Log("start again:", again.Start(ctx), time.Since(b))
	t.Log("stop again:", again.Stop(ctx), time.Since(b))
}
