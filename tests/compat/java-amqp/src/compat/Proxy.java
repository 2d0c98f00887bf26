package compat;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** A proxy between a client and a server that cuts their connections on request. */
final class Proxy implements AutoCloseable {
    private final ServerSocket listener;
    private final List<Socket> sockets = new ArrayList<>();

    Proxy(String host, int port) throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Suite.start(
                () -> {
                    while (!listener.isClosed()) {
                        try {
                            Socket client = listener.accept();
                            Socket server = new Socket(host, port);
                            synchronized (sockets) {
                                sockets.addAll(List.of(client, server));
                            }
                            Suite.start(() -> copy(client, server));
                            Suite.start(() -> copy(server, client));
                        } catch (IOException closed) {
                            return;
                        }
                    }
                });
    }

    int port() {
        return listener.getLocalPort();
    }

    private static void copy(Socket from, Socket to) {
        try (from;
                to) {
            from.getInputStream().transferTo(to.getOutputStream());
        } catch (IOException cut) {
            // Both ends are closed already.
        }
    }

    void cut() throws IOException {
        synchronized (sockets) {
            for (Socket socket : sockets) {
                socket.close();
            }
            sockets.clear();
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }
}
