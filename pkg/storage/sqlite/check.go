package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// progressEvery is how often long work logs its progress.
const progressEvery = 5 * time.Second

// check reads the whole file and returns what is wrong with it.
func check(ctx context.Context, db *sql.DB, path string) error {
	begun := time.Now()
	bytes := sizeOf(path) + sizeOf(path+"-wal")
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				klog.InfoS("Checking the file because it was not closed cleanly", "file", path, "bytes", bytes,
					"seconds", int(time.Since(begun).Seconds()))
			case <-done:
				return
			}
		}
	}()
	var faults []string
	rows, err := db.QueryContext(ctx, "PRAGMA quick_check(10)")
	err = each(rows, err, func() error {
		var fault string
		err := rows.Scan(&fault)
		if fault != "ok" {
			faults = append(faults, strings.TrimSpace(fault))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("check the file: %w", err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("it is damaged: %s; restore a copy or move it away", strings.Join(faults, "; "))
	}
	return nil
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
