package controlplane

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGatheringKeepsOrder(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	parts := []string{"short,", strings.Repeat("long", littleToWrite) + ",", "short again"}
	sent := make(chan error, 1)
	go func() {
		conn, err := coalescingListener{plain}.Accept()
		if err != nil {
			sent <- err
			return
		}
		for _, part := range parts {
			if _, err = io.WriteString(conn, part); err != nil {
				break
			}
		}
		_ = conn.Close()
		sent <- err
	}()
	client, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(parts, ""), string(got)); diff != "" {
		t.Errorf("what is written arrives whole and in order: -want +got:\n%s", diff)
	}
}

func TestGatheringTellsOfTheEnd(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (coalescingListener{plain}).Accept(); err == nil {
		t.Error("a closed listener accepts nothing: want its error")
	}
}
