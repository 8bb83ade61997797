// Package program runs a program of this project against the API server of a suite.
package program

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 30 * time.Second
	poll       = 100 * time.Millisecond
)

// Manifest is the path of a file of the project's deploy folder.
func Manifest(path ...string) string {
	return filepath.Join(append([]string{os.Getenv("CONFORMANCE_MANIFESTS")}, path...)...)
}

// Start runs the program of this name with the feature gates of the pass, and returns when it is ready. The caller stops it.
func Start(name string, kubeconfig []byte, args ...string) (stop func() error, err error) {
	work := os.Getenv("CONFORMANCE_WORK")
	config := filepath.Join(work, name+".kubeconfig")
	if err := os.WriteFile(config, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(work, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	health, err := freeAddress()
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args = append(args, "--health-listen="+health, "--metrics-listen="+metrics)
	if gates := os.Getenv("CONFORMANCE_GATES"); gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	command := exec.Command(filepath.Join(os.Getenv("CONFORMANCE_PROGRAMS"), name), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+config)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	stop = func() error {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			return err
		case <-time.After(stopLimit):
			_ = command.Process.Kill()
			return fmt.Errorf("%s did not end within %s of SIGTERM", name, stopLimit)
		}
	}
	limit := time.After(startLimit)
	for {
		if isReady(health) {
			return stop, nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("%s ended (%v): %s", name, err, said)
		case <-limit:
			return nil, errors.Join(fmt.Errorf("%s is not ready after %s: see %s", name, startLimit, log.Name()), stop())
		case <-time.After(poll):
		}
	}
}

func isReady(address string) bool {
	client := http.Client{Timeout: time.Second}
	answer, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)), nil
}
